// Memory of tensors: what cannot be had is an error before anybody asks the system for it.
#include "engine/base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/base/absent_tensor.h"
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

// Every type that is_integer takes, 2 and 4 bits included: a graph may hold any of them where a rule reads
// numbers.
TEST(TensorToInts, EveryIntegerType) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!is_integer(type)) continue;
    const std::vector<std::uint8_t> nothing(64);
    const Tensor shape = Tensor::allocate(type, {5});
    EXPECT_EQ(Tensor::copy_of(type, {5}, nothing.data(), static_cast<std::size_t>(shape.bytes())).to_ints(),
              std::vector<std::int64_t>(5, 0))
        << name(type);
  }
  const auto packed = [](DType type, const std::vector<std::uint8_t>& bytes, std::int64_t count) {
    return Tensor::copy_of(type, {count}, bytes.data(), bytes.size()).to_ints();
  };
  using Ints = std::vector<std::int64_t>;
  EXPECT_EQ(packed(DType::kU4, {0xf1, 0x08}, 3), (Ints{1, 15, 8}));
  EXPECT_EQ(packed(DType::kI4, {0xf1, 0x08}, 3), (Ints{1, -1, -8}));
  EXPECT_EQ(packed(DType::kU2, {0xe4, 0x02}, 5), (Ints{0, 1, 2, 3, 2}));
  EXPECT_EQ(packed(DType::kI2, {0xe4, 0x02}, 5), (Ints{0, 1, -2, -1, -2}));
}

TEST(AbsentTensor, HasSizesAndNoNumbers) {
  const Tensor small = absent_tensor(DType::kF32, {3, 5});
  const Tensor large = absent_tensor(DType::kF32, {1 << 20, 3});  // 12 MB, several pieces
  const Tensor later = absent_tensor(DType::kBF16, {7});
  for (const Tensor& tensor : {small, large, later}) EXPECT_TRUE(is_absent(tensor));
  EXPECT_EQ(small.dims(), (Dims{3, 5}));
  EXPECT_EQ(later.dtype(), DType::kBF16);
  for (std::int64_t i = 0; i < large.size(); i += 1000) ASSERT_TRUE(std::isnan(large.as<float>()[i])) << i;
  EXPECT_TRUE(std::isnan(large.as<float>()[large.size() - 1]));
  EXPECT_TRUE(std::isnan(small.as<float>()[14]));
  EXPECT_FALSE(is_absent(small.clone()));
  EXPECT_FALSE(is_absent(Tensor::scalar(1)));
  EXPECT_FALSE(is_absent(Tensor{}));
  EXPECT_EQ(absent_tensor(DType::kF32, {0, 4}).size(), 0);
}

}  // namespace
}  // namespace pare
