// TARGET_fuzz --fixed ARGUMENTS... runs fixed inputs (fixed_inputs.h) in place of libFuzzer's search.
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/fixed_inputs.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc < 2 || std::strcmp((*argv)[1], "--fixed") != 0) return 0;
  std::exit(pare::fuzz::run_fixed_inputs(*argc - 1, *argv + 1));
}
