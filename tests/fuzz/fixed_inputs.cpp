#include "tests/fuzz/fixed_inputs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace pare::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kLargest = 4096;  // bytes of a mutant

// A copy that ends where the bytes end: the sanitizer sees a read past them, in a mapping it would not.
void run_one(const std::uint8_t* start, std::size_t size) {
  const Bytes copy(start, start + size);
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

int replay(const std::vector<std::string>& names, const std::vector<Bytes>& files) {
  constexpr std::size_t kLengths = 512;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::printf("%s\n", names[i].c_str());
    std::fflush(stdout);
    const std::size_t size = files[i].size(), step = size <= kLengths ? 1 : size / kLengths;
    for (std::size_t length = size;; length = length < step ? 0 : length - step) {
      run_one(files[i].data(), length);
      ++runs;
      if (length == 0) break;
    }
  }
  std::printf("%zu inputs of %zu files\n", runs, files.size());
  return 0;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& files) : files_(files) {}

  Bytes next() {
    if (pick(16) == 0) return noise(pick(96));
    Bytes b = file();
    for (std::size_t i = 1 + pick(5); i > 0; --i) change(b);
    if (b.size() > kLargest) b.resize(kLargest);
    return b;
  }

 private:
  std::size_t pick(std::size_t count) {  // xorshift64*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::size_t>((state_ * 0x2545F4914F6CDD1DULL) >> 33) % std::max<std::size_t>(count, 1);
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(pick(256)); }
  const Bytes& file() { return files_[pick(files_.size())]; }
  Bytes noise(std::size_t size) {
    Bytes b(size);
    for (std::uint8_t& v : b) v = byte();
    return b;
  }
  Bytes piece(const Bytes& of, std::size_t most) {
    if (of.empty()) return {};
    const std::size_t from = pick(of.size()), size = 1 + pick(std::min(most, of.size() - from));
    return Bytes(of.begin() + static_cast<std::ptrdiff_t>(from),
                 of.begin() + static_cast<std::ptrdiff_t>(from + size));
  }
  void insert(Bytes& b, const Bytes& more) {
    b.insert(b.begin() + static_cast<std::ptrdiff_t>(pick(b.size() + 1)), more.begin(), more.end());
  }
  void overwrite(Bytes& b, const Bytes& with) {
    if (b.empty() || with.empty()) return;
    const std::size_t at = pick(b.size());
    std::copy_n(with.begin(), std::min(with.size(), b.size() - at),
                b.begin() + static_cast<std::ptrdiff_t>(at));
  }
  Bytes number() {  // little endian, 1 to 8 bytes
    static constexpr std::uint64_t kNumbers[] = {0,
                                                 1,
                                                 2,
                                                 0x7F,
                                                 0x80,
                                                 0xFF,
                                                 0x7FFF,
                                                 0x8000,
                                                 0xFFFF,
                                                 0x10000,
                                                 0x7FFFFFFF,
                                                 0x80000000,
                                                 0xFFFFFFFF,
                                                 0x100000000,
                                                 ~0ULL,
                                                 ~0ULL >> 1,
                                                 1ULL << 63,
                                                 ~0ULL - 7,
                                                 0x7FF0000000000000};
    const std::uint64_t value = kNumbers[pick(std::size(kNumbers))];
    Bytes b(std::size_t{1} << pick(4));
    std::memcpy(b.data(), &value, b.size());
    return b;
  }
  void change(Bytes& b) {
    const std::size_t at = pick(b.size());
    switch (pick(9)) {
      case 0:
        if (!b.empty()) b[at] = static_cast<std::uint8_t>(b[at] ^ (1U << pick(8)));
        return;
      case 1:
        if (!b.empty()) b[at] = byte();
        return;
      case 2:
        return overwrite(b, number());
      case 3:
        return insert(b, noise(1 + pick(8)));
      case 4: {
        const std::size_t size = std::min(b.size() - std::min(at, b.size()), 1 + pick(16));
        b.erase(b.begin() + static_cast<std::ptrdiff_t>(at),
                b.begin() + static_cast<std::ptrdiff_t>(at + size));
        return;
      }
      case 5:
        return overwrite(b, piece(Bytes(b), 32));
      case 6:
        return insert(b, piece(file(), 64));
      case 7:
        return overwrite(b, piece(file(), 64));
      default: {  // the tail of another file
        const Bytes other = piece(file(), kLargest);
        b.resize(at);
        b.insert(b.end(), other.begin(), other.end());
      }
    }
  }

  const std::vector<Bytes>& files_;
  std::uint64_t state_ = 0x9E3779B97F4A7C15ULL;
};

// The file that says what is running: memory that outlives a crash, without a write a run.
class Current {
 public:
  explicit Current(const char* path)
      : path_(path), file_(open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (file_ < 0 || ftruncate(file_, kLargest) != 0)
      fail(ErrorCode::kUsage, "cannot write '{}': {}", path, std::strerror(errno));
    memory_ = mmap(nullptr, kLargest, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory_ == MAP_FAILED) fail(ErrorCode::kUsage, "cannot map '{}'", path);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    munmap(memory_, kLargest);
    close(file_);
    std::remove(path_);
  }
  // Up to kLargest bytes. The pages stay the file's whatever its length is.
  void set(const Bytes& b) {
    if (ftruncate(file_, static_cast<off_t>(kLargest)) != 0) return;
    std::memcpy(memory_, b.data(), b.size());
    if (ftruncate(file_, static_cast<off_t>(b.size())) != 0) return;
  }

 private:
  const char* path_;
  int file_;
  void* memory_ = nullptr;
};

int mutate(const std::vector<Bytes>& files, long mutants, double seconds, const char* path) {
  using Clock = std::chrono::steady_clock;
  Mutator mutator(files);
  Current current(path);
  const auto start = Clock::now();
  long done = 0;
  for (; done < mutants; ++done) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > seconds) break;
    const Bytes b = mutator.next();
    current.set(b);
    LLVMFuzzerTestOneInput(b.data(), b.size());
  }
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%ld of %ld mutants of %zu files in %.1f s%s\n", done, mutants, files.size(), took,
              done < mutants ? ", ended by the time" : "");
  return 0;
}

}  // namespace

int run_fixed_inputs(int argc, char** argv) {
  try {
    if (argc != 2 && argc != 5)
      fail(ErrorCode::kUsage, "usage: {} CORPUS_FOLDER [MUTANTS SECONDS CURRENT_FILE]", argv[0]);
    const std::vector<std::string> names = list_directory(argv[1]);
    if (names.empty()) fail(ErrorCode::kBadFile, "no files in '{}'", argv[1]);
    std::vector<Bytes> files;
    for (const std::string& name : names) {
      const MappedFile file(join_path(argv[1], name));
      const auto* start = reinterpret_cast<const std::uint8_t*>(file.bytes().data());
      files.emplace_back(start, start + file.bytes().size());
    }
    if (argc == 2) return replay(names, files);
    return mutate(files, std::atol(argv[2]), std::atof(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace pare::fuzz
