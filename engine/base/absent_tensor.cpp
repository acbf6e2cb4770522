#include "engine/base/absent_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;

// Addresses that all read as 0xFF.
struct Region {
  explicit Region(std::size_t bytes) : size((bytes + kPiece - 1) / kPiece * kPiece) {
    const int file = ::memfd_create("absent", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(kPiece)) != 0) give_up(file);
    void* piece = ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (piece == MAP_FAILED) give_up(file);
    std::memset(piece, 0xFF, kPiece);
    ::munmap(piece, kPiece);
    void* memory = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) give_up(file);
    start = static_cast<std::byte*>(memory);
    for (std::size_t at = 0; at < size; at += kPiece)
      if (::mmap(start + at, kPiece, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        ::munmap(start, size);
        give_up(file);
      }
    ::close(file);
  }
  ~Region() { ::munmap(start, size); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* start = nullptr;
  std::size_t size;

 private:
  [[noreturn]] void give_up(int file) const {
    if (file >= 0) ::close(file);
    fail(ErrorCode::kDevice, "no address space of {} bytes is to be had", size);
  }
};

// All of them, each larger than the one before: few, and nothing but addresses, so none is given back.
struct Regions {
  std::mutex mutex;
  std::vector<std::shared_ptr<const Region>> all;
};
Regions& regions() {
  static Regions* const regions = new Regions;  // tensors may outlive whatever is destroyed at exit
  return *regions;
}

}  // namespace

Tensor absent_tensor(DType type, Dims dims) {
  PARE_ASSERT(type != DType::kString && type != DType::kUndefined);
  const auto bytes = static_cast<std::size_t>(byte_count(type, dims));
  Regions& known = regions();
  const std::lock_guard<std::mutex> guard(known.mutex);
  if (known.all.empty() || known.all.back()->size < bytes)
    known.all.push_back(std::make_shared<const Region>(std::max(bytes, kPiece)));
  const std::shared_ptr<const Region>& region = known.all.back();
  return Tensor::share(type, std::move(dims), region->start, region);
}

bool is_absent(const Tensor& tensor) {
  Regions& known = regions();
  const std::lock_guard<std::mutex> guard(known.mutex);
  return std::any_of(known.all.begin(), known.all.end(),
                     [&](const auto& region) { return tensor.data() == region->start; });
}

}  // namespace pare
