// Memory of tensors: what cannot be had is an error before anybody asks the system for it.
#include "engine/base/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "engine/base/error.h"

namespace pare {
namespace {

ErrorCode code_of(DType type, const Dims& dims) {
  try {
    Tensor::allocate(type, dims);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(TensorAllocate, SizesNoMachineHas) {
  for (const std::int64_t count : {std::int64_t{1} << 40, std::int64_t{1} << 50})
    for (const DType type : {DType::kI8, DType::kF32, DType::kF64, DType::kString})
      EXPECT_EQ(code_of(type, {count}), ErrorCode::kDevice) << name(type) << " " << count;
  EXPECT_EQ(code_of(DType::kF64, {std::int64_t{1} << 62}), ErrorCode::kBadFile) << "bytes overflow";
  EXPECT_EQ(code_of(DType::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}), ErrorCode::kBadFile);
}

TEST(TensorAllocate, ZeroElementsHaveAnAddress) {
  for (const DType type : {DType::kF32, DType::kString}) {
    const Tensor none = Tensor::allocate(type, {3, 0});
    EXPECT_EQ(none.size(), 0);
    EXPECT_NE(none.data(), nullptr);
  }
}

}  // namespace
}  // namespace pare
