// What the kernels of convolutions and products share.
#pragma once

#include "engine/cuda/kernel_source.h"

namespace pare::cuda {

// `void finish_(float* v, i64 column, i64 at, i64 row, int r)`: the epilogue over w neighbouring sums of one
// row; column and at (in the residual and output) are those of the first, row counts all rows and r those of
// the tile. Stores into out0. Its arguments are the kernel's, so it is a macro-like lambda in the kernel: put
// this text at its beginning.
// asked: a thread has one piece of the output, and calls `ask_(column, at)` for what it needs of memory
// before it has the sums.
std::string finish_code(const EnginePlan& plan, const PlanLayer& layer, int w, bool asked = false);

// "" or why finish_ over w neighbours cannot do what the layer asks for (normalization, sums of rows).
std::string finish_why_not(const PlanLayer& layer, int w);
// What finish_ needs of normalized rows, for a tile of BM rows from m0 on: fills shared memory and ends with
// SYNC_(). Needs tid, BM, M, THREADS and m0 in scope; "" when the layer normalizes nothing.
std::string stats_code(const PlanLayer& layer);
// The same where each warpgroup goes its own way: the arrays, and what fills them and waits for the group.
std::string lane_stats_shared(const PlanLayer& layer, int groups);
std::string lane_stats_code(const PlanLayer& layer);
// The epilogue on wgmma's sums where they lie: sum[MI][BN / 2] of a warp's 16 rows, from FIRST_ROW + 64 i on
// within the tile at (m0, n0). ROW_AT(r) is row r of the tile among all (M or more: not stored),
// STAT_ROW(name) its entry of stats. Needs BN in 32s and has_fragment_code(). Values by column (bias, scale
// ...) come out of shared memory: columns_shared() declares it, columns_code() fills part `group` for the
// tile's columns; a barrier of those threads must stand between it and this. `loaded`:
// fragment_residual_code() stands somewhere in front, so that the residual is on its way while sums are made;
// it takes fragment_residual_registers() of each thread.
std::string fragment_code(const EnginePlan& plan, const PlanLayer& layer, const char* group,
                          bool loaded = false);
std::string fragment_residual_code(const EnginePlan& plan, const PlanLayer& layer);
// Of a shortcut: its finished sums, rounded, in place of the residual; `sum` is free again.
std::string fragment_shortcut_code(const EnginePlan& plan, const PlanLayer& layer, const char* group);
int fragment_residual_registers(const EnginePlan& plan, const PlanLayer& layer, int mi, int n);
// "store_codes_<8>" or "store_<8>": store of w neighbours, and how a number in units of a code becomes one
// that such a store rounds: clipped to lo .. hi, then plus the zero point.
std::string store_word(DType type, int w);
std::string clipped_code(const char* value, double lo, double hi, double zero);
std::string columns_shared(const PlanLayer& layer, int groups);
int columns_bytes(const PlanLayer& layer, int groups, int n);
bool columns_are_weights(const EnginePlan& plan,
                         const PlanLayer& layer);  // columns_code() may stand before await_
std::string columns_code(const PlanLayer& layer, const char* group, const char* thread, int threads);
bool has_fragment_code(const EnginePlan& plan, const PlanLayer& layer);
// --- for the two files of epilogues (linear_code.cpp, fragment_code.cpp)
// The arithmetic on one sum `f`, whose column values are scale[e], bias[e] and so on; `f` is then what is
// stored. by_pairs: up to the activation, which works on two (activates_pairs()).
std::string value_code(const EnginePlan& plan, const PlanLayer& layer, bool by_pairs = false);
std::string copy_code(const EnginePlan& plan, const PlanLayer& layer);  // the code of v[e] in the copy
// Names of the values that belong to columns, by slot.
std::vector<std::pair<std::size_t, const char*>> column_values(const PlanLayer& layer);
// Sum and squared deviations of 32 neighbouring values of a row, 8 of them in each of 4 neighbouring lanes.
const char* piece_sums_code();

// v = the parts of all splits, in order.
const char* add_parts_code();

// Most neighbours that bias, residual and output take as one vector, given `columns` and the row strides.
int epilogue_width(const EnginePlan& plan, const PlanLayer& layer, std::int64_t columns);

// One layer as m x n sums of k products.
struct LinearSizes {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0, ldr = 0;              // row strides in elements
  std::int64_t step_a = 0, step_b = 0, step_d = 0, step_r = 0;  // between batches
  bool conv = false;
};
LinearSizes linear_sizes(const PlanLayer& layer);

}  // namespace pare::cuda
