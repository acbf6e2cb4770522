// A cursor over untrusted bytes. Bytes leave it only through a call that checks that they are there;
// what is missing is Error kBadFile that names the field, its offset and what is left.
//
// Numbers are little-endian unless the name says otherwise. Nothing is copied: spans and texts point into
// the bytes given to the constructor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "engine/base/error.h"

namespace pare {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t offset() const { return offset_; }
  std::size_t left() const { return bytes_.size() - offset_; }
  bool at_end() const { return left() == 0; }

  // `what` names the field in the error: "header length".
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left())
      fail(ErrorCode::kBadFile, "{} needs {} bytes at offset {}, but only {} are left", what, count, offset_,
           left());
    const auto part = bytes_.subspan(offset_, static_cast<std::size_t>(count));
    offset_ += part.size();
    return part;
  }

  std::string_view take_text(std::uint64_t count, std::string_view what) {
    const auto part = take(count, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  template <typename T>
  requires std::is_trivially_copyable_v<T> T take_little_endian(std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  void skip(std::uint64_t count, std::string_view what) { take(count, what); }

  // Moves to an offset from the start of the bytes (the end itself is allowed).
  void seek(std::uint64_t offset, std::string_view what) {
    if (offset > bytes_.size())
      fail(ErrorCode::kBadFile, "{} is at offset {}, but the data ends at {}", what, offset, bytes_.size());
    offset_ = static_cast<std::size_t>(offset);
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
};

// Error kBadFile "WHAT is COUNT, more than the LIMIT allowed". For counts out of a file, before allocation.
inline void check_limit(std::uint64_t count, std::uint64_t limit, std::string_view what) {
  if (count > limit) fail(ErrorCode::kBadFile, "{} is {}, more than the {} allowed", what, count, limit);
}

}  // namespace pare
