// Runs a fuzz target over the files of its corpus without libFuzzer, so that every compiler and sanitizer
// build does: each file whole, then cut short at every length (at 512 lengths spread evenly, when it is
// longer). A finding is a crash or an abort, as under libFuzzer; the name of the file is printed before it is
// read.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

int main(int argc, char** argv) {
  constexpr std::size_t kLengths = 512;
  try {
    if (argc != 2) pare::fail(pare::ErrorCode::kUsage, "usage: {} CORPUS_FOLDER", argv[0]);
    std::size_t runs = 0;
    const auto names = pare::list_directory(argv[1]);
    for (const std::string& name : names) {
      std::printf("%s\n", name.c_str());
      std::fflush(stdout);
      // A copy that ends where the bytes end: the sanitizer sees a read past them, in a mapping it would not.
      const pare::MappedFile file(pare::join_path(argv[1], name));
      const std::size_t size = file.bytes().size();
      const std::size_t step = size <= kLengths ? 1 : size / kLengths;
      for (std::size_t length = size;; length = length < step ? 0 : length - step) {
        const auto* start = reinterpret_cast<const std::uint8_t*>(file.bytes().data());
        const std::vector<std::uint8_t> copy(start, start + length);
        LLVMFuzzerTestOneInput(copy.data(), copy.size());
        ++runs;
        if (length == 0) break;
      }
    }
    if (names.empty()) pare::fail(pare::ErrorCode::kBadFile, "no files in '{}'", argv[1]);
    std::printf("%zu inputs of %zu files\n", runs, names.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
