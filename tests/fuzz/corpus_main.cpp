// Runs a fuzz target over its corpus (fixed_inputs.h) without libFuzzer, so that every compiler and sanitizer
// build does.
#include "tests/fuzz/fixed_inputs.h"

int main(int argc, char** argv) { return pare::fuzz::run_fixed_inputs(argc, argv); }
