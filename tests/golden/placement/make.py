#!/usr/bin/env python3
"""Writes the tables of this folder again: where Q/DQ stand in real models for target tensorrt, and by which rule.

    tests/golden/placement/make.py BUILD_DIR

The test that compares them (recipes_test, PlacementTables) writes them when PARE_WRITE_GOLDEN is set. Look at the
difference before it is committed: each line that changed is a Q/DQ pair that moved.
"""
import os
import subprocess
import sys

if len(sys.argv) != 2:
    sys.exit(__doc__)
program = os.path.join(sys.argv[1], 'bin', 'recipes_test')
environment = dict(os.environ, PARE_WRITE_GOLDEN='1')
sys.exit(subprocess.call([program, '--gtest_filter=*PlacementTables*'], env=environment))
