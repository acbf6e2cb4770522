// The files of tests/golden/datasets and the numbers that its make.py puts into them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "datasets/source.h"
#include "engine/base/mapped_file.h"
#include "tests/unit/test_paths.h"

namespace pare {

inline std::string golden(const std::string& name) { return source_path("tests/golden/datasets/" + name); }

inline std::string bytes_of(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

inline std::int64_t golden_number(DType type, std::int64_t i) {
  const std::int64_t n = i * 37 % 101;
  if (type == DType::kBool) return n & 1;
  const bool is_unsigned =
      type == DType::kU8 || type == DType::kU16 || type == DType::kU32 || type == DType::kU64;
  return is_unsigned ? n : n - 20;
}

// Element i of any tensor of the golden files as a double.
inline double element(DType type, const void* data, std::int64_t i) {
  const auto* bytes = static_cast<const char*>(data);
  const auto load = [&](auto value) {
    std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    return static_cast<double>(value);
  };
  switch (type) {
    case DType::kBool:
    case DType::kU8:
      return load(std::uint8_t{});
    case DType::kI8:
      return load(std::int8_t{});
    case DType::kU16:
      return load(std::uint16_t{});
    case DType::kI16:
      return load(std::int16_t{});
    case DType::kU32:
      return load(std::uint32_t{});
    case DType::kI32:
      return load(std::int32_t{});
    case DType::kU64:
      return load(std::uint64_t{});
    case DType::kI64:
      return load(std::int64_t{});
    case DType::kF16:
      return load(_Float16{});
    case DType::kF32:
      return load(float{});
    default:
      return load(double{});
  }
}

inline constexpr DType kGoldenTypes[] = {DType::kBool, DType::kI8,  DType::kU8,  DType::kI16,
                                         DType::kU16,  DType::kI32, DType::kU32, DType::kI64,
                                         DType::kU64,  DType::kF16, DType::kF32, DType::kF64};

}  // namespace pare
