// Data movement: every kernel against index arithmetic for elements of each size, and golden values.
#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

using Ints = std::vector<std::int64_t>;

const DType kTypes[] = {DType::kU8, DType::kF16, DType::kF32, DType::kF64, DType::kI64};

TEST(Movement, TransposeInEveryOrder) {
  for (const DType type : kTypes) {
    for (const Ints& perm : std::vector<Ints>{
             {0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {0, 1, 3, 2}, {2, 0, 3, 1}, {1, 0, 2, 3}})
      check_case({"Transpose", {counting(type, {2, 3, 17, 33})}, {{"perm", perm}}});
    check_case({"Transpose", {counting(type, {50, 70})}});
    check_case({"Transpose", {counting(type, {500, 301})}});
    check_case({"Transpose", {counting(type, {0, 3})}});
    check_case({"Transpose", {counting(type, {})}});
  }
  for (const std::int64_t width : {16, 32, 64, 10})
    check_case({"Transpose", {counting(DType::kF32, {4, 50, 3, 6, width})}, {{"perm", Ints{2, 0, 3, 1, 4}}}});
}

TEST(Movement, PackedTypes) {
  const Tensor codes = Tensor::from<std::uint8_t>(DType::kU4, {2, 3}, {0x21, 0x43, 0x65});  // 1 2 3 / 4 5 6
  check_values({"Transpose", {codes}}, {Tensor::from<std::uint8_t>(DType::kU4, {3, 2}, {0x41, 0x52, 0x63})});
  check_values({"Slice", {codes, ints({1}), ints({3}), ints({1})}},
               {Tensor::from<std::uint8_t>(DType::kU4, {2, 2}, {0x32, 0x65})});
  check_values({"Concat", {codes, codes}, {{"axis", std::int64_t{1}}}},
               {Tensor::from<std::uint8_t>(DType::kU4, {2, 6}, {0x21, 0x13, 0x32, 0x54, 0x46, 0x65})});
  check_values({"Gather", {codes, ints({-1})}, {{"axis", std::int64_t{1}}}},
               {Tensor::from<std::uint8_t>(DType::kU4, {2, 1}, {0x63})});
}

TEST(Movement, SliceExpandTileConcatSplit) {
  for (const DType type : kTypes) {
    const Tensor x = counting(type, {4, 5, 6});
    check_case({"Slice", {x, ints({1, 0}), ints({INT64_MAX, 2}), ints({0, 2})}});
    check_case({"Slice", {x, ints({-1, 4}), ints({INT64_MIN, 0}), ints({1, -1}), ints({-2, -1})}});
    check_case({"Slice", {x, ints({2}), ints({1}), ints({0})}});
    for (const Ints& range : std::vector<Ints>{{1, 3, 0, 1}, {0, 4, 1, 1}, {3, 4, 1, 1}, {2, 3, 0, -1}}) {
      OpCase view{"Slice", {x, ints({range[0]}), ints({range[1]}), ints({range[2]}), ints({range[3]})}};
      view.constants = true;
      check_case(view);
    }
    check_case({"Slice", {x, ints({3}), ints({INT64_MAX}), ints({2}), ints({INT64_MAX})}});
    check_case({"Expand", {counting(type, {3, 1}), ints({2, 1, 6})}});
    check_case({"Expand", {counting(type, {1, 6}), ints({5, 6})}});
    check_case({"Expand", {counting(type, {}), ints({0, 3})}});
    check_case({"Tile", {counting(type, {2, 3}), ints({2, 3})}});
    check_case({"Tile", {counting(type, {2, 3}), ints({0, 1})}});
    for (const std::int64_t axis : {0, 1, -1}) check_case({"Concat", {x, x, x}, {{"axis", axis}}});
    check_case({"Concat",
                {counting(type, {2, 3}), counting(type, {2, 0}), counting(type, {2, 1})},
                {{"axis", std::int64_t{1}}}});
    check_case({"Split", {x}, {{"axis", std::int64_t{1}}, {"num_outputs", std::int64_t{2}}}, 2});
    check_case({"Split", {x, ints({1, 0, 5})}, {{"axis", std::int64_t{-1}}}, 3});
    for (const char* mode : {"DCR", "CRD"})
      check_case({"DepthToSpace",
                  {counting(type, {2, 12, 3, 4})},
                  {{"blocksize", std::int64_t{2}}, {"mode", std::string(mode)}}});
    check_case({"SpaceToDepth", {counting(type, {2, 3, 4, 6})}, {{"blocksize", std::int64_t{2}}}});
  }
  check_values({"Slice", {of({6}, {0, 1, 2, 3, 4, 5}), ints({4}), ints({-7}), ints({0}), ints({-2})}},
               {of({3}, {4, 2, 0})});
  check_values(
      {"Slice", {Tensor::allocate(DType::kF32, {0, 4}), ints({3}), ints({INT64_MIN}), ints({0}), ints({-1})}},
      {Tensor::allocate(DType::kF32, {0, 4})});  // onnx/onnx#7735
  // NumPy: x.reshape(1, 2, 2, 2, 1, 2).transpose(0, 3, 4, 1, 5, 2)
  check_values(
      {"DepthToSpace", {of({1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7})}, {{"blocksize", std::int64_t{2}}}},
      {of({1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7})});
}

TEST(Movement, ViewsKeepBytes) {
  const Tensor x = counting(DType::kF32, {2, 1, 3});
  check_values({"Reshape", {x, ints({3, -1})}}, {counting(DType::kF32, {3, 2})});
  check_values({"Squeeze", {x, ints({1})}}, {counting(DType::kF32, {2, 3})});
  check_values({"Unsqueeze", {x, ints({0, 4})}}, {counting(DType::kF32, {1, 2, 1, 3, 1})});
  check_values({"Flatten", {x}}, {counting(DType::kF32, {2, 3})});
  check_values({"Identity", {x}}, {x});
  check_values({"Dropout", {x}}, {x});
  check_values({"Dropout", {of({2}, {5, 6})}, {}, 2},
               {of({2}, {5, 6}), Tensor::from<std::uint8_t>(DType::kBool, {2}, {1, 1})});
}

TEST(Movement, GatherAndScatter) {
  const Tensor x = of({2, 3}, {1, 2, 3, 4, 5, 6});
  check_values({"Gather", {x, ints({2, -3})}, {{"axis", std::int64_t{1}}}}, {of({2, 2}, {3, 1, 6, 4})});
  check_values({"Gather", {x, Tensor::from<std::int32_t>(DType::kI32, {}, {1})}}, {of({3}, {4, 5, 6})});
  check_values({"GatherElements",
                {x, Tensor::from<std::int64_t>(DType::kI64, {2, 1}, {2, -3})},
                {{"axis", std::int64_t{1}}}},
               {of({2, 1}, {3, 4})});
  check_values({"GatherND", {x, Tensor::from<std::int64_t>(DType::kI64, {2, 2}, {0, 0, 1, -1})}},
               {of({2}, {1, 6})});
  check_values({"GatherND",
                {x, Tensor::from<std::int64_t>(DType::kI64, {2, 1}, {1, 0})},
                {{"batch_dims", std::int64_t{1}}}},
               {of({2}, {2, 4})});
  check_values({"ScatterElements",
                {x, Tensor::from<std::int64_t>(DType::kI64, {1, 2}, {1, 0}), of({1, 2}, {10, 20})},
                {{"reduction", std::string("add")}}},
               {of({2, 3}, {1, 22, 3, 14, 5, 6})});
  check_values(
      {"ScatterND", {x, Tensor::from<std::int64_t>(DType::kI64, {1, 1}, {-1}), of({1, 3}, {7, 8, 9})}},
      {of({2, 3}, {1, 2, 3, 7, 8, 9})});
  for (const char* op : {"Gather", "GatherElements", "GatherND"}) {
    const OpCase c{op, {x, Tensor::from<std::int64_t>(DType::kI64, {1, 1}, {3})}};
    const auto kernels = cpu_registry().candidates("", op, Backend::kCpu);
    ASSERT_FALSE(kernels.empty());
    EXPECT_THROW(run_case(*kernels.front(), c, 1), Error) << op;
  }
}

TEST(Movement, PadAndTrilu) {
  const Tensor x = of({3}, {1, 2, 3});
  const auto padded = [&](const char* mode, Ints pads, const std::vector<float>& want) {
    check_values({"Pad", {x, ints(std::move(pads))}, {{"mode", std::string(mode)}}},
                 {of({static_cast<std::int64_t>(want.size())}, want)});
  };
  padded("constant", {1, 2}, {0, 1, 2, 3, 0, 0});
  padded("constant", {-1, 1}, {2, 3, 0});
  padded("edge", {2, 1}, {1, 1, 1, 2, 3, 3});
  padded("reflect", {2, 2}, {3, 2, 1, 2, 3, 2, 1});
  padded("wrap", {1, 2}, {3, 1, 2, 3, 1, 2});
  check_values({"Pad", {of({1, 2}, {1, 2}), ints({1, 0}), of({}, {9}), ints({-1})}}, {of({1, 3}, {9, 1, 2})});
  for (const DType type : kTypes)
    for (const Ints& pads : std::vector<Ints>{{0, 0, 1, 2, 0, 0, 3, 1},
                                              {1, 1, 0, 0, 0, 0, 0, 0},
                                              {0, 0, -1, -2, 0, 0, -1, 4},
                                              {0, 0, -9, 0, 0, 0, 9, 0}})
      check_case({"Pad", {counting(type, {2, 3, 5, 7}), ints(pads), counting(type, {}, 9)}});
  check_values({"Trilu", {of({2, 3}, {1, 2, 3, 4, 5, 6})}}, {of({2, 3}, {1, 2, 3, 0, 5, 6})});
  check_values({"Trilu", {of({2, 3}, {1, 2, 3, 4, 5, 6}), ints({INT64_MIN})}, {{"upper", std::int64_t{0}}}},
               {of({2, 3}, {0, 0, 0, 0, 0, 0})});
}

TEST(Movement, SizesAndNumbers) {
  check_values({"Shape", {floats({2, 3, 4})}, {{"start", std::int64_t{-2}}}}, {ints({3, 4})});
  check_values({"Size", {floats({2, 3, 4})}}, {ints({24}).reshaped({})});
  check_values({"ConstantOfShape", {ints({2, 2})}, {{"value", Tensor::ints({7})}}},
               {Tensor::from<std::int64_t>(DType::kI64, {2, 2}, {7, 7, 7, 7})});
  check_values({"Range", {of({}, {1}), of({}, {2}), of({}, {0.25F})}}, {of({4}, {1, 1.25F, 1.5F, 1.75F})});
  check_values({"Range", {ints({10}), ints({4}), ints({-4})}},
               {ints({10, 6})});  // shape [1] is accepted (S8)
  check_values({"Cast", {of({4}, {1.9F, -1.9F, 0, 300})}, {{"to", std::int64_t{3}}}},
               {Tensor::from<std::int8_t>(DType::kI8, {4}, {1, -1, 0, 44})});
  check_values({"Cast", {of({1}, {1.8131605F})}, {{"to", std::int64_t{17}}}},
               {Tensor::from<std::uint8_t>(DType::kE4M3FN, {1}, {0x3F})});  // S6
  check_values({"Cast", {of({3}, {7, -8, 3})}, {{"to", std::int64_t{22}}}},
               {Tensor::from<std::uint8_t>(DType::kI4, {3}, {0x87, 0x03})});
  check_values({"OneHot", {ints({1, -1, 5}), ints({3}), of({2}, {0, 2})}},
               {of({3, 3}, {0, 2, 0, 0, 0, 2, 0, 0, 0})});
  check_values({"EyeLike", {floats({2, 3})}, {{"k", std::int64_t{1}}}}, {of({2, 3}, {0, 1, 0, 0, 0, 1})});
}

Tensor strings(const std::vector<std::string>& v) {
  Tensor t = Tensor::allocate(DType::kString, {static_cast<std::int64_t>(v.size())});
  std::copy(v.begin(), v.end(), t.mut<std::string>());
  return t;
}
Tensor bools(const std::vector<std::uint8_t>& v) {
  return Tensor::from<std::uint8_t>(DType::kBool, {static_cast<std::int64_t>(v.size())}, v);
}
Tensor table(Dims dims, const std::vector<std::int64_t>& v) {
  return Tensor::from<std::int64_t>(DType::kI64, std::move(dims), v);
}

// numpy.nonzero, also of what has no element.
TEST(Select, NonZero) {
  check_values({"NonZero", {of({2, 3}, {0, 1, NAN, -0.0F, 0, -2})}}, {table({2, 3}, {0, 0, 1, 1, 2, 2})});
  for (const DType type : kTypes)
    check_values({"NonZero", {to_type(of({4}, {0, 3, 0, 1}), type)}}, {table({1, 2}, {1, 3})});
  check_values({"NonZero", {of({2}, {0, 0})}}, {table({1, 0}, {})});
  check_values({"NonZero", {Tensor::allocate(DType::kF32, {3, 0, 2})}}, {table({3, 0}, {})});
  check_values({"NonZero", {of({}, {5})}}, {table({0, 1}, {})});
  check_values({"NonZero", {strings({"", "a"})}}, {table({1, 1}, {1})});
}

// numpy.compress
TEST(Select, Compress) {
  const Tensor x = of({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto along = [](std::int64_t axis) { return Attributes{{"axis", axis}}; };
  check_values({"Compress", {x, bools({0, 1, 1})}, along(0)}, {of({2, 2}, {3, 4, 5, 6})});
  check_values({"Compress", {x, bools({0, 1})}, along(-1)}, {of({3, 1}, {2, 4, 6})});
  check_values({"Compress", {x, bools({0, 1})}, along(0)}, {of({1, 2}, {3, 4})});
  check_values({"Compress", {x, bools({0, 1, 0, 0, 1})}}, {of({2}, {2, 5})});
  check_values({"Compress", {x, bools({})}}, {of({0}, {})});
  check_values({"Compress", {strings({"a", "b"}), bools({0, 1})}}, {strings({"b"})});
  const OpCase outside{"Compress", {x, bools({0, 0, 1})}, along(1)};
  EXPECT_THROW(run_case(*cpu_registry().candidates("", "Compress", Backend::kCpu).front(), outside, 1),
               Error);
}

// numpy.unique: one NaN behind the numbers, one zero.
TEST(Select, Unique) {
  const Tensor x = of({7}, {2, NAN, 1, 2, NAN, -0.0F, 0});
  check_values({"Unique", {x}, {}, 4}, {of({4}, {-0.0F, 1, 2, NAN}), table({4}, {5, 2, 0, 1}),
                                        table({7}, {2, 3, 1, 2, 3, 0, 0}), table({4}, {2, 1, 2, 2})});
  check_values({"Unique", {x}, {{"sorted", std::int64_t{0}}}, 4},
               {of({4}, {2, NAN, 1, -0.0F}), table({4}, {0, 1, 2, 5}), table({7}, {0, 1, 2, 0, 1, 3, 3}),
                table({4}, {2, 2, 1, 2})});
  const Tensor rows = of({3, 2}, {1, 0, 1, 0, 0, 9});
  check_values({"Unique", {rows}, {{"axis", std::int64_t{0}}}, 4},
               {of({2, 2}, {0, 9, 1, 0}), table({2}, {2, 0}), table({3}, {1, 1, 0}), table({2}, {1, 2})});
  check_values({"Unique", {of({2, 3}, {1, 0, 1, 5, 6, 5})}, {{"axis", std::int64_t{-1}}}},
               {of({2, 2}, {0, 1, 6, 5})});
  check_values({"Unique", {Tensor::allocate(DType::kI64, {0})}, {}, 4},
               {table({0}, {}), table({0}, {}), table({0}, {}), table({0}, {})});
  check_values({"Unique", {strings({"b", "a", "b"})}}, {strings({"a", "b"})});
}

}  // namespace
}  // namespace pare::testing
