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

int cmd_licenses(struct cli *c)
{
    (void)c;
    fputs(notices, stdout);
    return INFR_OK;
}
