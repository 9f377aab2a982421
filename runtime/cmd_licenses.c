// SPDX-License-Identifier: Apache-2.0
#include "runtime/cli.h"

static const char notices[] =
    "Runtime and kernels of this engine: infc.\n"
    "\n"
    "Licensed under the Apache License, Version 2.0 (the \"License\"); you may not use this file\n"
    "except in compliance with the License. You may obtain a copy of the License at\n"
    "\n"
    "    http://www.apache.org/licenses/LICENSE-2.0\n"
    "\n"
    "Unless required by applicable law or agreed to in writing, software distributed under the\n"
    "License is distributed on an \"AS IS\" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,\n"
    "either express or implied. See the License for the specific language governing permissions\n"
    "and limitations under the License.\n"
    "\n"
    "The GNU C Library (glibc) is linked statically into this file.\n"
    "\n"
    "Copyright (C) Free Software Foundation, Inc. and contributors\n"
    "\n"
    "The GNU C Library is free software; you can redistribute it and/or modify it under the terms\n"
    "of the GNU Lesser General Public License as published by the Free Software Foundation;\n"
    "either version 2.1 of the License, or (at your option) any later version.\n"
    "\n"
    "It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even\n"
    "the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU\n"
    "Lesser General Public License, https://www.gnu.org/licenses/lgpl-2.1.html, for details.\n"
    "\n"
    "Whoever passes this file on must let its users link it again with another version of the\n"
    "library: infc build --emit=objects writes the objects for that. The library's source is at\n"
    "https://www.gnu.org/software/libc/ and with every distribution that ships it.\n"
    "\n"
    "Parts of libgcc are linked into this file under the GPL version 3 with the GCC Runtime\n"
    "Library Exception 3.1, which allows that without conditions:\n"
    "https://www.gnu.org/licenses/gcc-exception-3.1.html\n"
    "\n"
    "The model's weights are under the licence that its author chose; this file does not know\n"
    "which.\n";

/* The terms ask for their own words. */
static const char libevent[] =
    "\n"
    "The server of this engine has libevent linked into it.\n"
    "\n"
    "Copyright (c) 2000-2007 Niels Provos <provos@citi.umich.edu>\n"
    "Copyright (c) 2007-2012 Niels Provos and Nick Mathewson\n"
    "\n"
    "Redistribution and use in source and binary forms, with or without modification, are permitted\n"
    "provided that the following conditions are met:\n"
    "1. Redistributions of source code must retain the above copyright notice, this list of\n"
    "   conditions and the following disclaimer.\n"
    "2. Redistributions in binary form must reproduce the above copyright notice, this list of\n"
    "   conditions and the following disclaimer in the documentation and/or other materials provided\n"
    "   with the distribution.\n"
    "3. The name of the author may not be used to endorse or promote products derived from this\n"
    "   software without specific prior written permission.\n"
    "\n"
    "THIS SOFTWARE IS PROVIDED BY THE AUTHOR ``AS IS'' AND ANY EXPRESS OR IMPLIED WARRANTIES,\n"
    "INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A\n"
    "PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY DIRECT,\n"
    "INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED\n"
    "TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS\n"
    "INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT\n"
    "LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS\n"
    "SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.\n";

extern const struct cli_extra infr_text_commands __attribute__((weak));
extern const struct cli_extra infr_serve_commands __attribute__((weak));

int cmd_licenses(struct cli *c)
{
    (void)c;
    fputs(notices, stdout);
    if (&infr_text_commands || &infr_serve_commands) fputs(libevent, stdout);
    return INFR_OK;
}
