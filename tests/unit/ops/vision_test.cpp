// GridSample, DeformConv, AffineGrid, RoiAlign, MaxRoiPool, Col2Im, MaxUnpool, CenterCropPad, TensorScatter,
// DFT, STFT, MelWeightMatrix. The node tests of the onnx project cover the ordinary cases
// (tests/conformance); here are values worked out by hand, and the ugly ones.
#include <complex>
#include <limits>

#include "engine/ops/axis/signal.h"
#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Attribute number(std::int64_t v) { return v; }
Attribute word(const char* text) { return std::string(text); }

// What the last kernel that takes the case throws.
void expect_bad_file(const OpCase& c) {
  const auto kernels = cpu_registry().candidates(c.domain, c.op, Backend::kCpu);
  try {
    for (auto kernel = kernels.rbegin(); kernel != kernels.rend(); ++kernel)
      if (run_case(**kernel, c, 1).declined.empty()) break;
    FAIL() << text(c) << " was taken, or by no kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
  }
}

TEST(Vision, GridSampleAtEdgesAndBeyond) {
  const Tensor x = of({1, 1, 1, 4}, {1, 2, 4, 8});  // rows of one element: v = 0 is its centre
  const auto grid = [](std::vector<float> u) {
    std::vector<float> both;
    for (const float value : u) {
      both.push_back(value);
      both.push_back(0);
    }
    return of({1, 1, static_cast<std::int64_t>(u.size()), 2}, both);
  };
  // Without align_corners -1 is the outer edge, half an element before the first: half of it is outside.
  check_values({"GridSample", {x, grid({-1, -0.75F, 0, 1})}}, {of({1, 1, 1, 4}, {0.5F, 1, 3, 4})});
  check_values({"GridSample", {x, grid({-1, 0, 1})}, {{"align_corners", number(1)}}},
               {of({1, 1, 1, 3}, {1, 3, 8})});
  check_values({"GridSample", {x, grid({-1, -9, 9})}, {{"padding_mode", word("border")}}},
               {of({1, 1, 1, 3}, {1, 1, 8})});
  // 1.25 in elements is 4 * 2.25 / 2 - 0.5 = 4: one past the last edge at 3.5, reflected to 3.
  check_values({"GridSample", {x, grid({1.25F, -1.25F})}, {{"padding_mode", word("reflection")}}},
               {of({1, 1, 1, 2}, {8, 1})});
  // nearest: ties go to the even element; 0 lies between elements 1 and 2.
  check_values({"GridSample", {x, grid({0, 0.1F, -3})}, {{"mode", word("nearest")}}},
               {of({1, 1, 1, 3}, {4, 4, 0})});
  check_values({"GridSample", {x, grid({kNan, kInf, -kInf, 1e30F})}}, {of({1, 1, 1, 4}, {0, 0, 0, 0})});
  check_values({"GridSample", {x, grid({kNan, kInf, -kInf})}, {{"padding_mode", word("border")}}},
               {of({1, 1, 1, 3}, {1, 1, 1})});
  // A cubic through equal values is that value: the weights sum to 1.
  check_values({"GridSample",
                {of({1, 1, 2, 2}, {3, 3, 3, 3}), floats({1, 5, 5, 2}, 3)},
                {{"mode", word("cubic")}, {"padding_mode", word("border")}},
                1,
                0x1p-23},
               {of({1, 1, 5, 5}, std::vector<float>(25, 3))});
  check_case({"GridSample", {floats({2, 3, 4, 5}), floats({2, 0, 7, 2})}});
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF64})
    check_case({"GridSample", {to_type(floats({1, 2, 3, 3}), type), to_type(floats({1, 2, 2, 2}, 2), type)}});
  expect_bad_file({"GridSample", {floats({1, 1, 0, 4}), floats({1, 2, 2, 2})}});
  expect_bad_file({"GridSample", {floats({1, 1, 4, 4}), floats({1, 2, 2, 3})}});
}

TEST(Vision, DeformConvWithoutOffsetsIsConv) {
  const Tensor x = floats({2, 4, 6, 5}), w = floats({6, 2, 3, 2}, 2), bias = floats({6}, 3);
  const Attributes attrs = {{"group", number(2)}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 1}}};
  const std::vector<Tensor> want = check_case({"Conv", {x, w, bias}, attrs, 1, 1e-4, 1e-5});
  const Dims& d = want[0].dims();
  const auto zeros = [](Dims dims) { return floats(std::move(dims), 1, 0, 0); };
  Attributes deform = attrs;
  deform["offset_group"] = number(2);
  const Tensor offset = zeros({2, 2 * 6 * 2, d[2], d[3]}), ones = floats({2, 2 * 6, d[2], d[3]}, 1, 1, 1);
  // The same sums in another order of double: equal but for one rounding to float.
  OpCase c{"DeformConv", {x, w, offset, bias, ones}, deform};
  c.relative = 0x1p-22;
  c.absolute = 1e-7;
  check_values(c, want);
  c.in.pop_back();
  check_values(c, want);
  // All places moved by one element down and right: the data moved up and left.
  const Tensor moved = floats({1, 2, 1, 1}, 1, 1, 1);
  check_values(
      {"DeformConv", {of({1, 1, 2, 2}, {1, 2, 3, 4}), of({1, 1, 1, 1}, {10}), floats({1, 2, 2, 2}, 1, 1, 1)}},
      {of({1, 1, 2, 2}, {40, 0, 0, 0})});
  check_values(
      {"DeformConv", {of({1, 1, 1, 1}, {5}), of({1, 1, 1, 1}, {2}), floats({1, 2, 1, 1}, 1, kNan, kNan)}},
      {of({1, 1, 1, 1}, {0})});
  expect_bad_file({"DeformConv",
                   {floats({1, 3, 2, 2}), floats({1, 3, 1, 1}), floats({1, 4, 2, 2})},
                   {{"offset_group", number(2)}}});
  expect_bad_file({"DeformConv", {of({1, 1, 2, 2}, {1, 2, 3, 4}), of({1, 1, 1, 1}, {10}), moved}});
}

TEST(Vision, AffineGrid) {
  const Tensor identity = of({1, 2, 3}, {1, 0, 0, 0, 1, 0});
  check_values({"AffineGrid", {identity, ints({1, 1, 1, 2})}}, {of({1, 1, 2, 2}, {-0.5F, 0, 0.5F, 0})});
  check_values({"AffineGrid", {identity, ints({1, 1, 1, 2})}, {{"align_corners", number(1)}}},
               {of({1, 1, 2, 2}, {-1, -1, 1, -1})});
  check_case({"AffineGrid", {to_type(floats({2, 3, 4}), DType::kF16), ints({2, 1, 2, 3, 4})}});
  expect_bad_file({"AffineGrid", {identity, ints({2, 1, 1, 2})}});
  expect_bad_file({"AffineGrid", {identity, ints({1, 1, 2})}});
}

TEST(Vision, Boxes) {
  const Tensor x = of({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  // One sample in the middle of a box that is the whole image: the centre.
  const Attributes one = {{"sampling_ratio", number(1)}};
  check_values({"RoiAlign", {x, of({1, 4}, {0, 0, 3, 3}), ints({0})}, one}, {of({1, 1, 1, 1}, {5})});
  check_values({"RoiAlign", {x, of({2, 4}, {20, 20, 30, 30, kNan, 0, 3, 3}), ints({0, 0})}, one},
               {of({2, 1, 1, 1}, {0, 0})});
  // A box turned inside out has no elements; with output_half_pixel it is made 1 by 1.
  check_values({"RoiAlign", {x, of({1, 4}, {2, 2, 1, 1}), ints({0})}}, {of({1, 1, 1, 1}, {0})});
  check_values({"RoiAlign",
                {x, of({1, 4}, {0.5F, 0.5F, 0, 0}), ints({0})},
                {{"coordinate_transformation_mode", word("output_half_pixel")}}},
               {of({1, 1, 1, 1}, {5})});
  check_case({"RoiAlign",
              {to_type(floats({2, 3, 5, 5}), DType::kF16), to_type(of({1, 4}, {0, 0, 4, 4}), DType::kF16),
               ints({1})},
              {{"output_height", number(2)}, {"mode", word("max")}}});
  check_case({"RoiAlign", {x, floats({0, 4}), ints({})}});
  expect_bad_file({"RoiAlign", {x, of({1, 4}, {0, 0, 1, 1}), ints({1})}});
  expect_bad_file({"RoiAlign", {x, of({1, 4}, {0, 0, 1, 1}), ints({-1})}});
  expect_bad_file({"RoiAlign", {x, of({1, 4}, {0, 0, kInf, 1}), ints({0})}});
  const Attributes two = {{"pooled_shape", Ints{2, 2}}};
  // Rows and columns 0-1 and 1-2: bins of 1.5 elements, rounded outwards.
  check_values({"MaxRoiPool", {x, of({1, 5}, {0, 0, 0, 2, 2})}, two}, {of({1, 1, 2, 2}, {5, 6, 8, 9})});
  check_values({"MaxRoiPool", {x, of({1, 5}, {0, 7, 7, 9, 9})}, two}, {of({1, 1, 2, 2}, {0, 0, 0, 0})});
  check_values({"MaxRoiPool", {x, of({1, 5}, {0, -1e30F, kNan, kInf, 2})}, two},
               check_case({"MaxRoiPool", {x, of({1, 5}, {0, -1e30F, kNan, kInf, 2})}, two}));
  expect_bad_file({"MaxRoiPool", {x, of({1, 5}, {kNan, 0, 0, 2, 2})}, two});
  expect_bad_file({"MaxRoiPool", {x, of({1, 5}, {0, 0, 0, 2, 2})}, {{"pooled_shape", Ints{2}}}});
}

TEST(Vision, NonMaxSuppression) {
  // Box 1 overlaps box 0 by half (a third of both together); box 2 is apart, box 3 is box 0 turned inside
  // out.
  const Tensor boxes = of({1, 4, 4}, {0, 0, 2, 2, 0, 1, 2, 3, 5, 5, 6, 6, 2, 2, 0, 0});
  const Tensor scores = of({1, 1, 4}, {0.5F, 0.9F, 0.1F, 0.5F}), two = ints({2}), ten = ints({10});
  const auto rows = [](const Ints& chosen) {
    Ints all;
    for (const std::int64_t k : chosen) all.insert(all.end(), {0, 0, k});
    return Tensor::from<std::int64_t>(DType::kI64, {static_cast<std::int64_t>(chosen.size()), 3}, all);
  };
  check_values({"NonMaxSuppression", {boxes, scores, ten, of({}, {0.3F})}}, {rows({1, 2})});
  check_values({"NonMaxSuppression", {boxes, scores, ten, of({}, {0.4F})}},
               {rows({1, 0, 2})});  // 3 is hidden by 0
  check_values({"NonMaxSuppression", {boxes, scores, two, of({}, {0.4F})}}, {rows({1, 0})});
  check_values({"NonMaxSuppression", {boxes, scores, ten, of({}, {1}), of({}, {0.5F})}}, {rows({1})});
  check_values({"NonMaxSuppression", {boxes, scores}}, {rows({})});
  check_values({"NonMaxSuppression", {boxes, of({1, 1, 4}, {kNan, kInf, -kInf, kNan}), ten}}, {rows({1, 2})});
  check_values({"NonMaxSuppression", {floats({0, 4, 4}), floats({0, 2, 4}), ten}}, {rows({})});
  check_values({"NonMaxSuppression",
                {of({1, 2, 4}, {1, 1, 2, 2, 1, 1, 0, 0}), of({1, 1, 2}, {1, 2}), ten},
                {{"center_point_box", number(1)}}},
               {rows({1, 0})});  // a box without area hides nothing
  expect_bad_file({"NonMaxSuppression", {boxes, floats({1, 1, 3}), ten}});
}

TEST(Vision, Col2Im) {
  // Blocks of 2 elements at 0, 1, 2 of a row of 4: the inner elements are in two blocks.
  const Tensor blocks = of({1, 2, 3}, {1, 2, 3, 10, 20, 30});
  check_values({"Col2Im", {blocks, ints({1, 4}), ints({1, 2})}}, {of({1, 1, 1, 4}, {1, 12, 23, 30})});
  check_values({"Col2Im", {to_type(blocks, DType::kU8), ints({1, 4}), ints({1, 2})}},
               {to_type(of({1, 1, 1, 4}, {1, 12, 23, 30}), DType::kU8)});
  check_values(
      {"Col2Im",
       {Tensor::from<std::int8_t>(DType::kI8, {1, 2, 2}, {0, 100, 100, 0}), ints({1, 3}), ints({1, 2})}},
      {Tensor::from<std::int8_t>(DType::kI8, {1, 1, 1, 3}, {0, -56, 0})});  // wraps
  check_values(
      {"Col2Im",
       {Tensor::from<std::uint8_t>(DType::kBool, {1, 2, 2}, {0, 1, 1, 0}), ints({1, 3}), ints({1, 2})}},
      {Tensor::from<std::uint8_t>(DType::kBool, {1, 1, 1, 3}, {0, 1, 0})});
  expect_bad_file({"Col2Im", {blocks, ints({1, 5}), ints({1, 2})}});
  expect_bad_file({"Col2Im", {blocks, ints({1, 4}), ints({1, 3})}});
  expect_bad_file({"Col2Im", {blocks, ints({1, 4}), ints({0, 2})}});
}

TEST(Vision, MaxUnpool) {
  const Tensor x = of({1, 1, 1, 2}, {5, 7});
  const Attributes attrs = {{"kernel_shape", Ints{1, 2}}, {"strides", Ints{1, 2}}};
  check_values({"MaxUnpool", {x, Tensor::from<std::int64_t>(DType::kI64, {1, 1, 1, 2}, {1, 2})}, attrs},
               {of({1, 1, 1, 4}, {0, 5, 7, 0})});
  check_values({"MaxUnpool",
                {x, Tensor::from<std::int64_t>(DType::kI64, {1, 1, 1, 2}, {1, 2}), ints({1, 1, 2, 5})},
                attrs},
               {of({1, 1, 2, 5}, {0, 5, 7, 0, 0, 0, 0, 0, 0, 0})});
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{4}, INT64_MAX})
    expect_bad_file(
        {"MaxUnpool", {x, Tensor::from<std::int64_t>(DType::kI64, {1, 1, 1, 2}, {0, index})}, attrs});
  expect_bad_file({"MaxUnpool",
                   {x, Tensor::from<std::int64_t>(DType::kI64, {1, 1, 1, 2}, {0, 3}), ints({1, 1, 1, 3})},
                   attrs});
}

TEST(Vision, CenterCropPad) {
  const Tensor x = counting(DType::kI32, {5});
  check_values({"CenterCropPad", {x, ints({2})}}, {Tensor::from<std::int32_t>(DType::kI32, {2}, {2, 3})});
  check_values({"CenterCropPad", {x, ints({8})}},
               {Tensor::from<std::int32_t>(DType::kI32, {8}, {0, 1, 2, 3, 4, 5, 0, 0})});
  check_values({"CenterCropPad", {x, ints({0})}}, {Tensor::allocate(DType::kI32, {0})});
  // Cut on one axis and padded on the other.
  check_values({"CenterCropPad", {of({2, 3}, {1, 2, 3, 4, 5, 6}), ints({1, 3})}, {{"axes", Ints{-1, 0}}}},
               {of({3, 1}, {2, 5, 0})});
  expect_bad_file({"CenterCropPad", {x, ints({2, 3})}});
  expect_bad_file({"CenterCropPad", {x, ints({-2})}});
}

TEST(Vision, TensorScatter) {
  const Tensor past = of({2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8}), update = of({2, 2, 1}, {10, 20, 30, 40});
  check_values({"TensorScatter", {past, update}}, {of({2, 4, 1}, {10, 20, 3, 4, 30, 40, 7, 8})});
  check_values({"TensorScatter", {past, update, ints({2, 1})}},
               {of({2, 4, 1}, {1, 2, 10, 20, 5, 30, 40, 8})});
  check_values({"TensorScatter", {past, update, ints({3, 1})}, {{"mode", word("circular")}}},
               {of({2, 4, 1}, {20, 2, 3, 10, 5, 30, 40, 8})});
  expect_bad_file({"TensorScatter", {past, update, ints({3, 1})}});
  expect_bad_file({"TensorScatter", {past, update, ints({-1, 1})}});
  expect_bad_file({"TensorScatter", {past, update, ints({0})}});
  expect_bad_file({"TensorScatter", {past, update}, {{"axis", number(0)}}});
}

TEST(Vision, ReverseSequence) {
  const Tensor x = counting(DType::kI16, {3, 2});  // time, batch
  check_values({"ReverseSequence", {x, ints({2, 3})}},
               {Tensor::from<std::int16_t>(DType::kI16, {3, 2}, {3, 6, 1, 4, 5, 2})});
  check_values(
      {"ReverseSequence", {x, ints({0, 1, 2})}, {{"time_axis", number(1)}, {"batch_axis", number(0)}}},
      {Tensor::from<std::int16_t>(DType::kI16, {3, 2}, {1, 2, 3, 4, 6, 5})});
  expect_bad_file({"ReverseSequence", {x, ints({2, 4})}});
  expect_bad_file({"ReverseSequence", {x, ints({2, -1})}});
  expect_bad_file({"ReverseSequence", {x, ints({2})}});
  expect_bad_file({"ReverseSequence", {x, ints({2, 3})}, {{"time_axis", number(1)}}});
}

// The definition, term by term.
std::vector<std::complex<double>> plain_fourier(const std::vector<std::complex<double>>& x, bool inverse) {
  const std::size_t n = x.size();
  std::vector<std::complex<double>> y(n, 0);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t j = 0; j < n; ++j) {
      const double angle =
          (inverse ? 2 : -2) * M_PI * static_cast<double>(j * k % n) / static_cast<double>(n);
      y[k] += x[j] * std::complex<double>(std::cos(angle), std::sin(angle));
    }
  return y;
}

TEST(Signal, FourierByFactorsIsTheDefinition) {
  for (const std::size_t n : {0U, 1U, 2U, 3U, 7U, 8U, 30U, 97U, 360U}) {
    std::vector<std::complex<double>> x(n);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = {std::sin(static_cast<double>(i * i)), std::cos(3.0 * static_cast<double>(i))};
    for (const bool inverse : {false, true}) {
      const auto got = fourier(x, inverse), want = plain_fourier(x, inverse);
      // n terms of at most 1.5, each with a few roundings of 2^-53.
      for (std::size_t k = 0; k < n; ++k)
        EXPECT_LE(std::abs(got[k] - want[k]), 8e-16 * static_cast<double>(n * 4)) << n << " " << k;
    }
  }
}

TEST(Signal, DftCutsPadsAndComesBack) {
  const Tensor x = floats({2, 6, 1});
  const auto once = [&](const Tensor& in, std::int64_t length, Attributes attrs) {
    const Tensor n = length < 0 ? Tensor() : Tensor::from<std::int64_t>(DType::kI64, {}, {length});
    const Tensor axis = Tensor::from<std::int64_t>(DType::kI64, {}, {1});
    return check_case({"DFT", {in, n, axis}, std::move(attrs), 1, 1e-6, 1e-6})[0];
  };
  const Attributes one = {{"onesided", number(1)}}, back = {{"onesided", number(1)}, {"inverse", number(1)}};
  // Real numbers through half a spectrum and back, even and odd lengths.
  expect_close(once(once(x, -1, one), -1, back), x, 0, 1e-6, "six");
  const Tensor five = once(once(x, 5, one), 5, back);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(five.as<float>()[i], x.as<float>()[i], 1e-6);
  // Padded: the first six come back, then zeros.
  const Tensor nine = once(once(x, 9, {}), 9, {{"inverse", number(1)}});
  for (std::int64_t i = 0; i < 9; ++i)
    EXPECT_NEAR(nine.as<float>()[2 * i], i < 6 ? x.as<float>()[i] : 0, 1e-6);
  check_values({"DFT", {of({1, 2, 1}, {1, 2})}}, {of({1, 2, 2}, {3, 0, -1, 0})});
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF64}) check_case({"DFT", {to_type(x, type)}});
  const Tensor zero = Tensor::from<std::int64_t>(DType::kI64, {}, {0}),
               two = Tensor::from<std::int64_t>(DType::kI64, {}, {2});
  expect_bad_file({"DFT", {x, zero}});
  expect_bad_file({"DFT", {x, Tensor(), two}});  // the axis of the parts
}

TEST(Signal, StftFramesAndMelWeights) {
  const auto scalar = [](std::int64_t v) { return Tensor::from<std::int64_t>(DType::kI64, {}, {v}); };
  // Two frames of 2 at 0 and 3: sums 1 + 2 and 4 + 5; differences -1.
  check_values({"STFT", {of({1, 5, 1}, {1, 2, 3, 4, 5}), scalar(3), Tensor(), scalar(2)}},
               {of({1, 2, 2, 2}, {3, 0, -1, 0, 9, 0, -1, 0})});
  check_values(
      {"STFT", {of({1, 5, 1}, {1, 2, 3, 4, 5}), scalar(3), of({2}, {1, 0.5F})}, {{"onesided", number(0)}}},
      {of({1, 2, 2, 2}, {2, 0, 0, 0, 6.5F, 0, 1.5F, 0})});
  expect_bad_file({"STFT", {of({1, 2, 1}, {1, 2}), scalar(1), Tensor(), scalar(3)}});
  expect_bad_file({"STFT", {of({1, 2, 1}, {1, 2}), scalar(0), Tensor(), scalar(2)}});
  const auto mel = [&](std::int64_t bins, std::int64_t length, float high) {
    return OpCase{"MelWeightMatrix",
                  {scalar(bins), scalar(length), scalar(8000), of({}, {0}), of({}, {high})}};
  };
  const Tensor w = check_case(mel(4, 64, 4000))[0];
  ASSERT_EQ(w.dims(), (Dims{33, 4}));
  for (std::int64_t i = 0; i < w.size(); ++i) EXPECT_TRUE(w.as<float>()[i] >= 0 && w.as<float>()[i] <= 1);
  expect_bad_file(mel(4, 64, 9000));  // beyond the spectrum
  expect_bad_file(mel(4, 64, kNan));
  expect_bad_file(mel(0, 64, 4000));
}

}  // namespace
}  // namespace pare::testing
