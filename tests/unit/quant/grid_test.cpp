#include "quant/grid/grid.h"

#include <bit>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_search.h"
#include "quant/grid/search_rows.h"
#include "quant/grid/stored_rows.h"
#include "quant/grid/weight_rows.h"
#include "tests/unit/quant/grid_cases.h"

namespace pare::quant {
namespace {

std::vector<GridFormat> formats_of_interest() {
  return {format_of(DType::kI8, 0),
          format_of(DType::kU8, 0, DType::kF32, false),
          format_of(DType::kI4, 5),
          format_of(DType::kU4, 8, DType::kBF16, false),
          format_of(DType::kI4, 8, DType::kF16, true, 3),
          format_of(DType::kI2, 4),
          format_of(DType::kE4M3FN, 0),
          format_of(DType::kE5M2, 0),
          format_of(DType::kE2M1, 16, DType::kE4M3FN),
          format_of(DType::kE2M1, 32, DType::kE8M0),
          format_of(DType::kE4M3FN, 32, DType::kE8M0)};
}

// Codes on the grid are what QuantizeLinear and DequantizeLinear make of the same scales.
TEST(Grid, DecodedCodesEqualQuantizeLinear) {
  ThreadPool pool(2);
  const RowShape shape{6, 66, 33};
  const std::vector<float> w = grid_weights(shape.count());
  for (const GridFormat& format : formats_of_interest()) {
    SCOPED_TRACE(std::string(name(format.codes)) + " " + name(format.scales));
    const Grid grid = amax_grid(format, shape, w.data(), pool);
    ASSERT_EQ(static_cast<std::int64_t>(grid.scales.size()), layout_of(format, shape).scales());
    std::vector<std::uint8_t> codes(w.size());
    std::vector<float> decoded(w.size()), expected(w.size());
    encode(format, shape, grid, w.data(), codes.data(), pool);
    decode(format, shape, grid, codes.data(), decoded.data(), pool);
    QuantTarget target;
    target.type = format.codes;
    fake_quantize(w.data(), layout_of(format, shape), grid.scales.data(),
                  grid.zero_points.empty() ? nullptr : grid.zero_points.data(), target, expected.data());
    if (format.bits == 0) {
      EXPECT_EQ(decoded, expected);
    }
    // Nothing is further from its weight than half a step of the largest binade, but for the clipping of
    // E8M0's rounding down (values up to twice the largest code).
    for (std::size_t i = 0; i < w.size(); ++i)
      EXPECT_LE(std::fabs(decoded[i] - w[i]), 0.5f * std::fabs(w[i]) + 0.3f * 0.5f) << i;
  }
}

TEST(Grid, ScalesAreWhatIsWritten) {
  ThreadPool pool(1);
  const RowShape shape = RowShape::whole(4, 64);
  const std::vector<float> w = grid_weights(shape.count());
  for (const GridFormat& format : formats_of_interest()) {
    SCOPED_TRACE(std::string(name(format.codes)) + " " + name(format.scales));
    const Grid grid = amax_grid(format, shape, w.data(), pool);
    const std::vector<float> written = written_scales(format, grid);
    for (std::size_t i = 0; i < written.size(); ++i) {
      const FormatInfo& type = format_info(format.scales);
      std::uint32_t code = 0;
      float back = 0;
      type.encode(&written[i], &code, 1);
      type.decode(&code, &back, 1);
      EXPECT_EQ(back, written[i]);
      EXPECT_EQ(format.scales == DType::kE4M3FN ? back * grid.global : back, grid.scales[i]);
    }
  }
}

// Kernels of every class against the scalar functions of the formats, for any float and any length.
TEST(Grid, CodesEqualTheScalarFunctions) {
  const Isa before = isa();
  ThreadPool pool(1);
  std::mt19937 random(3);
  std::vector<float> w;
  for (int i = 0; i < 3000; ++i) w.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (int i = 0; i < 3000; ++i)
    w.push_back(std::ldexp(static_cast<float>(random() % 257) - 128, static_cast<int>(random() % 24) - 20));
  for (const float v : {0.0f, -0.0f, INFINITY, -INFINITY, 448.0f, 464.0f, 57344.0f, 61440.0f, 1e-45f})
    w.push_back(v);
  for (const DType type : {DType::kE4M3FN, DType::kE5M2, DType::kE2M1, DType::kI8, DType::kU8, DType::kI4,
                           DType::kU4, DType::kI2, DType::kU2}) {
    GridFormat format;
    format.codes = type;
    const FormatInfo& info = format_info(type);
    for (const Isa level : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      if (level > best_isa()) continue;
      set_isa(level);
      SCOPED_TRACE(std::string(name(type)) + " " + name(level));
      for (std::int64_t at = 0, n = 1; at + n <= static_cast<std::int64_t>(w.size());
           at += n, n = n % 67 + 1) {
        Grid grid;
        grid.scales = {1.5f};
        std::vector<std::uint8_t> codes(static_cast<std::size_t>(n));
        std::vector<float> back(codes.size());
        encode(format, RowShape::whole(1, n), grid, w.data() + at, codes.data(), pool);
        decode(format, RowShape::whole(1, n), grid, codes.data(), back.data(), pool);
        for (std::int64_t i = 0; i < n; ++i) {
          const float quotient = w[static_cast<std::size_t>(at + i)] / 1.5f;
          std::uint8_t code = 0;
          float value = 0;
          info.encode(&quotient, &code, 1);
          info.decode(&code, &value, 1);
          ASSERT_EQ(codes[static_cast<std::size_t>(i)], code) << quotient;
          const float expected = value * 1.5f, got = back[static_cast<std::size_t>(i)];
          ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected))) << quotient;
        }
      }
    }
  }
  set_isa(before);
}

TEST(Grid, RefusesNan) {
  ThreadPool pool(1);
  const float w[4] = {0, 1, std::nanf(""), 2};
  EXPECT_THROW(amax_grid(GridFormat{}, RowShape::whole(1, 4), w, pool), Error);
}

// A convolution's columns are (tap, channel); there and back is the identity.
TEST(WeightRows, ThereAndBack) {
  const Dims dims = {4, 3, 2, 2};
  WeightView view;
  view.outs = 4, view.ins = 3, view.taps = 4, view.in_stride = 4, view.out_stride = 12;
  std::vector<float> values(48);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor weight = Tensor::from(DType::kF32, dims, values);
  const WeightRows rows = gather_rows(weight, view);
  EXPECT_EQ(rows.values[1], 4);  // tap 0 of channel 1
  EXPECT_EQ(rows.values[3], 1);  // tap 1 of channel 0
  const Tensor back = scatter_rows(rows, view, dims);
  EXPECT_EQ(std::vector<float>(back.as<float>(), back.as<float>() + 48), values);
}

// Codes in the low bits of bytes -> signed ones as int8.
std::vector<std::uint8_t> as_numbers(const GridFormat& format, std::vector<std::uint8_t> codes) {
  const FormatInfo& info = format_info(format.codes);
  for (std::uint8_t& code : codes)
    if (info.is_integer() && info.is_signed && (code >> (info.bits - 1) & 1) != 0)
      code = static_cast<std::uint8_t>(code - (1 << info.bits));
  return codes;
}

// Rows by rows as they are stored: the bits of the whole in float32, for any threads. 300 columns and 700
// rows are several slices, the last one short.
TEST(StoredRows, AreTheBitsOfTheWhole) {
  ThreadPool one(1), two(2);
  const std::int64_t outs = 700, ins = 320;
  const std::vector<float> w = grid_weights(outs * ins);
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    Tensor stored = Tensor::allocate(type, {outs, ins});
    if (type == DType::kF32)
      std::copy(w.begin(), w.end(), stored.mut<float>());
    else
      encode(type, w.data(), stored.mut<std::byte>(), stored.size());
    std::vector<float> values(w.size());
    decode(type, stored.data(), values.data(), stored.size());
    float amax = 0;
    for (const float v : values) amax = std::max(amax, std::fabs(v));
    EXPECT_EQ(stored_amax(stored, two), amax);
    for (const GridFormat& format : formats_of_interest()) {
      if (type != DType::kBF16 && format.scales == DType::kF32) continue;
      for (const bool search : {false, true}) {
        SCOPED_TRACE(std::string(name(type)) + " " + name(format.codes) + " " + name(format.scales));
        const RowShape shape = RowShape::whole(outs, ins);
        const float global = format.scales == DType::kE4M3FN ? amax / (6 * 448) : 0;
        Grid wanted;
        if (search && format.group == 0 && format.symmetric) {
          wanted = amax_grid(format, shape, values.data(), one);
          search_rows(format, shape, values.data(), wanted, one);
        } else {
          GridSearch options;
          options.search = search;
          options.global = global;
          wanted = choose_grid(format, shape, values.data(), options, one);
        }
        std::vector<std::uint8_t> codes(values.size());
        encode(format, shape, wanted, values.data(), codes.data(), one);
        for (ThreadPool* pool : {&one, &two}) {
          const StoredCodes got = quantize_stored(format, stored, search, global, *pool);
          EXPECT_EQ(got.codes, as_numbers(format, codes));
          EXPECT_EQ(got.grid.scales, wanted.scales);
          EXPECT_EQ(got.grid.zero_points, wanted.zero_points);
          EXPECT_EQ(got.grid.global, wanted.global);
        }
      }
    }
    if (type != DType::kF32) continue;
    stored.mut<float>()[5000] = NAN;
    EXPECT_THROW(stored_amax(stored, one), Error);
    EXPECT_THROW(quantize_stored(formats_of_interest()[0], stored, false, 0, two), Error);
  }
}

// One scale for all, and one for every block of 64x96 (the last ones short), against the rows that the header
// names: all values as one row; the values of a block as a row, zeros where it ends early.
TEST(StoredRows, TensorsAndBlocks) {
  ThreadPool one(1), two(2);
  const std::int64_t outs = 300, ins = 200, tall = 64, wide = 96, down = 5, across = 3;
  const std::vector<float> w = grid_weights(outs * ins);
  Tensor stored = Tensor::allocate(DType::kBF16, {outs, ins});
  encode(DType::kBF16, w.data(), stored.mut<std::byte>(), stored.size());
  std::vector<float> values(w.size());
  decode(DType::kBF16, stored.data(), values.data(), stored.size());
  std::vector<float> rows(static_cast<std::size_t>(down * across * tall * wide), 0.0f);
  const auto place = [&](std::int64_t r, std::int64_t c) {
    return static_cast<std::size_t>(((r / tall * across + c / wide) * tall + r % tall) * wide + c % wide);
  };
  for (std::int64_t r = 0; r < outs; ++r)
    for (std::int64_t c = 0; c < ins; ++c) rows[place(r, c)] = values[static_cast<std::size_t>(r * ins + c)];
  for (const DType type : {DType::kE4M3FN, DType::kI8, DType::kI4})
    for (const DType scales : {DType::kF32, DType::kBF16})
      for (const bool search : {false, true}) {
        SCOPED_TRACE(std::string(name(type)) + " " + name(scales));
        GridFormat format;
        format.codes = type;
        format.scales = scales;
        const auto wanted = [&](const RowShape& shape, const std::vector<float>& x, Grid& grid) {
          grid = amax_grid(format, shape, x.data(), one);
          GridSearch options;
          if (search && scales == DType::kF32 && type != DType::kI4)
            search_rows(format, shape, x.data(), grid, one);
          else if (search)
            grid = choose_grid(format, shape, x.data(), options, one);
          std::vector<std::uint8_t> codes(x.size());
          encode(format, shape, grid, x.data(), codes.data(), one);
          return as_numbers(format, codes);
        };
        Grid grid;
        std::vector<std::uint8_t> codes = wanted(RowShape::whole(1, outs * ins), values, grid);
        for (ThreadPool* pool : {&one, &two}) {
          const StoredCodes got = quantize_stored_tensor(format, stored, search, *pool);
          EXPECT_EQ(got.grid.scales, grid.scales);
          EXPECT_EQ(got.codes, codes);
        }
        codes = wanted(RowShape::whole(down * across, tall * wide), rows, grid);
        for (ThreadPool* pool : {&one, &two}) {
          const StoredCodes got = quantize_stored_blocks(format, stored, tall, wide, search, *pool);
          EXPECT_EQ(got.grid.scales, grid.scales);
          for (std::int64_t r = 0; r < outs; ++r)
            for (std::int64_t c = 0; c < ins; ++c)
              ASSERT_EQ(got.codes[static_cast<std::size_t>(r * ins + c)], codes[place(r, c)])
                  << r << " " << c;
        }
      }
  GridFormat asymmetric;
  asymmetric.codes = DType::kU8;
  asymmetric.symmetric = false;
  const StoredCodes got = quantize_stored_tensor(asymmetric, stored, false, two);
  const Grid grid = amax_grid(asymmetric, RowShape::whole(1, outs * ins), values.data(), one);
  EXPECT_EQ(got.grid.scales, grid.scales);
  EXPECT_EQ(got.grid.zero_points, grid.zero_points);
  for (const std::uint16_t odd : {0x7F80, 0xFF80, 0x7FC1}) {  // infinities and NaN
    stored.mut<std::uint16_t>()[777] = odd;
    EXPECT_THROW(quantize_stored_tensor(asymmetric, stored, false, two), Error);
    EXPECT_THROW(quantize_stored_blocks(GridFormat{}, stored, tall, wide, false, two), Error);
    EXPECT_THROW(stored_amax(stored, two), Error);
  }
  stored.mut<std::uint16_t>()[777] = 0xFF7F;  // the largest, negative
  EXPECT_EQ(stored_amax(stored, two), decode_bf16(0x7F7F));
  EXPECT_EQ(stored_amax(Tensor::allocate(DType::kF32, {0, 4}), two), 0);
  EXPECT_TRUE(
      quantize_stored_tensor(asymmetric, Tensor::allocate(DType::kF32, {0, 4}), false, two).codes.empty());
}

}  // namespace
}  // namespace pare::quant
