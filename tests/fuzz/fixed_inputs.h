// A fuzz target over inputs that depend on its corpus and a seed alone: not on coverage, compiler, machine or
// the code under test. A change elsewhere cannot move what is tried, so a failure is a change of behaviour.
//
//   TARGET FOLDER                           each file whole, then cut short at every length (at 512 lengths
//                                           spread evenly, when it is longer)
//   TARGET FOLDER MUTANTS SECONDS CURRENT   MUTANTS inputs made of the files (bits, bytes, numbers, pieces of
//                                           other files, noise), ended by SECONDS on a slow machine, which is
//                                           said. The file CURRENT holds the input that is running: what is
//                                           in it after a crash is the finding
#pragma once

namespace pare::fuzz {

int run_fixed_inputs(int argc, char** argv);  // the exit code; prints what it ran

}  // namespace pare::fuzz
