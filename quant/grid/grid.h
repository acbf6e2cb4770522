// What a weight may become: for every group of neighbouring columns of a row a scale (and zero point), and
// the codes of a format behind it. Every weight method chooses a Grid, then codes on it.
//
//   weight   [rows, cols] float32: a row an output channel (weight_rows.h). The columns fall into segments
//            (one a kernel tap) that groups never straddle; the last group of a segment may be short
//   value    (code - zero) * scale, with scale the float32 number that a reader computes from what is
//            written: a float, a bfloat16 or float16 widened, a power of two (MX), or an E4M3 code times the
//            global scale, rounded to float32 (NVFP4)
//   code     rne(w / scale) + zero, saturated: from the rounded scale, never from the one before rounding
//
// A group of zeros gets scale 1 (two-level: the E4M3 code 1.0). NaN or infinity in a weight: Error kBadFile.
// Sources: ONNX QuantizeLinear-25; OCP MX 1.0; NVFP4 as in TensorRT's two-level form.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/numeric/quantize.h"

namespace pare::quant {

struct GridFormat {
  DType codes = DType::kI8;    // (u)int8, (u)int4, (u)int2, E4M3FN, E5M2, E2M1
  int bits = 0;                // integers: fewer than the type holds (3, in int4); 0: all of them
  bool symmetric = true;       // false: zero points, integers only
  bool positive = false;       // scales above zero only: what some targets ask for
  DType scales = DType::kF32;  // F32, F16, BF16; E4M3FN: two levels, with a global float32; E8M0: powers of 2
  std::int64_t group = 0;      // columns that share a scale; 0: the whole row
  // Rows that share the scales of their groups (FP8 in blocks of 128x128): a grid has them once a row all the
  // same, so only who chooses scales, and who writes them, knows. One-level symmetric formats, one segment.
  std::int64_t rows = 1;

  double largest_code() const;
  double lowest_code() const;
};

struct RowShape {
  std::int64_t rows = 0, cols = 0, segment = 0;  // segment divides cols; equals it where there is one tap

  static RowShape whole(std::int64_t rows, std::int64_t cols) { return {rows, cols, cols}; }
  std::int64_t count() const { return rows * cols; }
};

// Groups a row.
std::int64_t groups_of(const GridFormat& format, const RowShape& shape);
// How engine/numeric sees it, for row-major values.
ScaleLayout layout_of(const GridFormat& format, const RowShape& shape);

struct Grid {
  std::vector<float> scales;              // [rows, groups], as read back
  std::vector<std::int32_t> zero_points;  // [rows, groups]; empty when symmetric
  float global = 1;                       // two-level formats
};

// The rule of the largest magnitude, without a search:
//   symmetric    amax / largest code (127, 7, 448, 57344)
//   asymmetric   (max - min) / (codes - 1) over the range extended to 0; zero rne(lowest - min / scale)
//   two levels   global = amax of all / (6 * 448); block scale E4M3(amax / 6 / global), at least 2^-9
//   E8M0         2^(floor(log2 amax) - e), e the exponent of the largest code (2 for E2M1, 8 for E4M3)
// and the scale rounded to its type.
Grid amax_grid(const GridFormat& format, const RowShape& shape, const float* weight, ThreadPool& pool);

// One code a byte, in its low bits.
void encode(const GridFormat& format, const RowShape& shape, const Grid& grid, const float* weight,
            std::uint8_t* codes, ThreadPool& pool);
void decode(const GridFormat& format, const RowShape& shape, const Grid& grid, const std::uint8_t* codes,
            float* weight, ThreadPool& pool);

// A scale rounded to how it is written, and as it is read back. `global` is of two-level formats.
float round_scale(const GridFormat& format, double scale, float global);
// What is written: decoded E4M3 block scales (scale / global, exact), else the scales themselves.
std::vector<float> written_scales(const GridFormat& format, const Grid& grid);

}  // namespace pare::quant
