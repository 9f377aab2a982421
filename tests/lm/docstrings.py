#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A text of prose and code for judging language models: what modules of the standard library say of themselves."""
import argparse
import decimal
import difflib
import inspect
import zipfile

for m in (difflib, zipfile, argparse, decimal):
    print(m.__doc__)
    for name in sorted(vars(m)):
        o = getattr(m, name)
        if (inspect.isclass(o) or inspect.isfunction(o)) and o.__module__ == m.__name__:
            print(name, o.__doc__ or "")
