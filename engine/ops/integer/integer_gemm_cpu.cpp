// MatMulInteger and ConvInteger by the tiles of qgemm.h (dynamically quantized layers). MatMulInteger: one
// matrix b whatever the rank of a. ConvInteger: rows are windows, gathered a few at a time.
//
// Zero points may come with the data (DynamicQuantizeLinear), so neither enters the packing:
//   sum (a - za)(b - zb) = sum a (b - z) - (zb - z) sum a - za (sum b - k zb)
// with z = 0 for int8 and 128 for uint8, which let b be bytes. Sums of rows and columns are exact, too.
#include <algorithm>
#include <vector>

#include "engine/ir/window.h"
#include "engine/ops/integer/integer_ref.h"
#include "engine/ops/integer/qgemm.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

bool is_signed(const TensorView& view) { return view.dtype == DType::kI8; }

std::int32_t code_at(const TensorView& view, std::int64_t i) {
  return is_signed(view) ? view.as<std::int8_t>()[i] : view.as<std::uint8_t>()[i];
}

// Of one zero point, or of one an index; 0 without any.
std::int32_t zero_at(const TensorView& view, std::int64_t i) {
  return view.present() ? code_at(view, view.size() == 1 ? 0 : i) : 0;
}

// The zero point that b is packed with.
std::int32_t packed_zero(const TensorView& b) { return is_signed(b) ? 0 : 128; }

// b [k, n], packed, and the sums of its columns.
struct Operand {
  QPacked packed;
  std::vector<std::int32_t> sums;
  std::int32_t zero = 0;

  Operand(const TensorView& a, const TensorView& b, std::int64_t first, std::int64_t k, std::int64_t n,
          std::int64_t stride_k, std::int64_t stride_c)
      : sums(static_cast<std::size_t>(n), 0), zero(packed_zero(b)) {
    packed = qgemm_pack(q_kernels(), {is_signed(a), 0}, {is_signed(b), zero}, b.as<std::uint8_t>() + first, k,
                        n, stride_k, stride_c);
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t c = 0; c < n; ++c)
        sums[static_cast<std::size_t>(c)] += code_at(b, first + i * stride_k + c * stride_c);
  }
};

struct Plan {
  std::vector<Operand> operands;  // one a group; empty when b is no constant
};

// What has to be taken from each sum, by column.
struct Correction {
  std::vector<std::int32_t> shift, column;  // zb - z, and sum b - k zb
  bool shifted = false;

  Correction(const Operand& b, const TensorView& zero, std::int64_t first, std::int64_t k)
      : shift(b.sums.size()), column(shift) {
    for (std::size_t c = 0; c < shift.size(); ++c) {
      const std::int32_t z = zero_at(zero, first + static_cast<std::int64_t>(c));
      shift[c] = z - b.zero;
      column[c] = static_cast<std::int32_t>(b.sums[c] - k * z);
      shifted = shifted || shift[c] != 0;
    }
  }
};

// Rows [begin, end) times b. row(r, room): k codes, in `room` or elsewhere; zero(r): za; store(r, c, value).
template <typename Row, typename Zero, typename Store>
void multiply(const Operand& b, const Correction& correction, std::int64_t k, bool signed_a,
              std::int64_t begin, std::int64_t end, const Row& row, const Zero& zero, const Store& store) {
  const QPacked& packed = b.packed;
  const std::int64_t stride = packed.row_bytes(), panels = packed.panel_count();
  Tensor memory = Tensor::allocate(DType::kU8, {kQMaxRows * stride + k});
  auto* const codes = memory.mut<std::uint8_t>();
  std::uint8_t* const room = codes + kQMaxRows * stride;
  std::int32_t out[kQMaxRows * kQMaxPanels * kQPanel];
  for (std::int64_t first = begin; first < end; first += kQMaxRows) {
    const int count = static_cast<int>(std::min<std::int64_t>(kQMaxRows, end - first));
    std::int32_t sum_a[kQMaxRows] = {}, zero_a[kQMaxRows] = {};
    for (int r = 0; r < count; ++r) {
      const std::uint8_t* const from = row(first + r, room);
      packed.copy(from, k, codes + r * stride);
      if (correction.shifted)
        for (std::int64_t i = 0; i < k; ++i)
          sum_a[r] += signed_a ? static_cast<std::int8_t>(from[i]) : from[i];
      zero_a[r] = zero(first + r);
    }
    for (std::int64_t panel = 0; panel < panels; panel += kQMaxPanels) {
      const int width = static_cast<int>(std::min<std::int64_t>(kQMaxPanels, panels - panel));
      packed.tile(codes, stride, count, panel, width, out);
      const std::int64_t from = panel * kQPanel,
                         columns = std::min<std::int64_t>(width * kQPanel, packed.n - from);
      for (int r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto at = static_cast<std::size_t>(from + c);
          const std::uint32_t off =
              static_cast<std::uint32_t>(correction.shift[at]) * static_cast<std::uint32_t>(sum_a[r]) +
              static_cast<std::uint32_t>(zero_a[r]) * static_cast<std::uint32_t>(correction.column[at]);
          store(first + r, from + c,
                static_cast<std::int32_t>(static_cast<std::uint32_t>(out[r * width * kQPanel + c]) - off));
        }
    }
  }
}

std::string types_why_not(const OpCall& call, std::int64_t k) {
  if (q_kernels() == nullptr) return "needs AVX2";
  for (const int i : {0, 1, 2, 3})
    if (call.has(i))
      if (std::string reason = type_reason(call, i, {DType::kI8, DType::kU8}); !reason.empty()) return reason;
  if (k > qgemm_max_k({is_signed(call.input(0)), 0}, {is_signed(call.input(1)), packed_zero(call.input(1))}))
    return "sums may leave int32";
  return {};
}

// --- MatMulInteger

std::string matmul_why_not(const OpCall& call) {
  const TensorView &a = call.input(0), &b = call.input(1);
  if (a.dims.size() < 2 || b.dims.size() < 2) return "a or b is of rank 1";
  for (std::size_t i = 0; i + 2 < b.dims.size(); ++i)
    if (b.dims[i] != 1) return "b has more than one matrix";
  if (b.dims.size() > a.dims.size()) return "b has a higher rank than a";
  const std::int64_t k = a.dims.back(), n = b.dims.back(), rows = k == 0 ? 0 : a.size() / k;
  if (call.has(2) && call.input(2).size() != 1 && call.input(2).size() != rows)
    return "zero points of a are neither one nor one a row";
  if (call.has(3) && call.input(3).size() != 1 && call.input(3).size() != n)
    return "zero points of b are neither one nor one a column";
  return types_why_not(call, k);
}

Operand matmul_operand(const OpCall& call) {
  const std::int64_t k = call.input(0).dims.back(), n = call.input(1).dims.back();
  return Operand(call.input(0), call.input(1), 0, k, n, n, 1);
}

std::shared_ptr<const void> matmul_prepare(const OpCall& call) {
  auto plan = std::make_shared<Plan>();
  if (call.input(1).data != nullptr && call.input(1).size() > 0)
    plan->operands.push_back(matmul_operand(call));
  return plan;
}

void run_matmul(const OpCall& call) {
  const TensorView& a = call.input(0);
  const std::int64_t k = a.dims.back(), n = call.input(1).dims.back();
  auto* const y = call.out[0].mut<std::int32_t>();
  if (call.out[0].size() == 0) return;
  if (k == 0) {
    std::fill_n(y, call.out[0].size(), 0);
    return;
  }
  Plan own;
  const Plan* plan = static_cast<const Plan*>(call.prepared);
  if (plan->operands.empty()) {
    own.operands.push_back(matmul_operand(call));
    plan = &own;
  }
  const Correction correction(plan->operands[0], call.input(3), 0, k);
  const std::int64_t rows = a.size() / k, blocks = (rows + kQMaxRows - 1) / kQMaxRows;
  call.pool->parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    multiply(
        plan->operands[0], correction, k, is_signed(a), begin * kQMaxRows, std::min(rows, end * kQMaxRows),
        [&](std::int64_t r, std::uint8_t*) { return a.as<std::uint8_t>() + r * k; },
        [&](std::int64_t r) { return zero_at(call.input(2), r); },
        [&](std::int64_t r, std::int64_t c, std::int32_t value) { y[r * n + c] = value; });
  });
}

// --- ConvInteger

std::string conv_why_not(const OpCall& call) {
  const Dims &x = call.input(0).dims, &w = call.input(1).dims;
  if (call.has(2) && call.input(2).size() != 1) return "more than one zero point of x";
  if (call.has(3) && call.input(3).size() != 1 && call.input(3).size() != w[0])
    return "zero points of w are neither one nor one an output channel";
  if (x.size() < 3) return "no spatial axis";
  return types_why_not(call, product_of(w, 1, w.size()));
}

std::vector<Operand> conv_operands(const OpCall& call) {
  const TensorView& w = call.input(1);
  const std::int64_t groups = call.node->attr("group", std::int64_t{1}),
                     k = product_of(w.dims, 1, w.dims.size()), m = w.dims[0] / groups;
  std::vector<Operand> operands;
  for (std::int64_t g = 0; g < groups; ++g) operands.emplace_back(call.input(0), w, g * m * k, k, m, 1, k);
  return operands;
}

std::shared_ptr<const void> conv_prepare(const OpCall& call) {
  auto plan = std::make_shared<Plan>();
  if (call.input(1).data != nullptr && call.input(1).size() > 0) plan->operands = conv_operands(call);
  return plan;
}

// Where the window of each output place reads one channel; -1: padding.
std::vector<std::int32_t> window_places(const OpCall& call) {
  const TensorView &x = call.input(0), &w = call.input(1), &y = call.out[0];
  Window window = read_window(*call.node, Dims(w.dims.begin() + 2, w.dims.end()));
  resolve_pads(window, Dims(x.dims.begin() + 2, x.dims.end()));
  const std::size_t axes = window.kernel.size();
  const std::int64_t points = product_of(y.dims, 2, y.dims.size()),
                     kernel = product_of(window.kernel, 0, axes);
  std::vector<std::int32_t> places(static_cast<std::size_t>(points * kernel));
  for (std::int64_t p = 0; p < points; ++p)
    for (std::int64_t k = 0; k < kernel; ++k) {
      std::int64_t rest_p = p, rest_k = k, place = 0, stride = 1;
      bool inside = true;
      for (std::size_t i = axes; i-- > 0;) {
        const std::int64_t at = rest_p % y.dims[i + 2] * window.strides[i] - window.pads_begin[i] +
                                rest_k % window.kernel[i] * window.dilations[i];
        rest_p /= y.dims[i + 2];
        rest_k /= window.kernel[i];
        inside = inside && at >= 0 && at < x.dims[i + 2];
        place += at * stride;
        stride *= x.dims[i + 2];
      }
      places[static_cast<std::size_t>(p * kernel + k)] = inside ? static_cast<std::int32_t>(place) : -1;
    }
  return places;
}

void run_conv(const OpCall& call) {
  const TensorView &x = call.input(0), &w = call.input(1), &y = call.out[0];
  if (y.size() == 0) return;
  const std::int64_t k = product_of(w.dims, 1, w.dims.size());
  if (k == 0) {
    std::fill_n(y.mut<std::int32_t>(), y.size(), 0);
    return;
  }
  Plan own;
  const Plan* plan = static_cast<const Plan*>(call.prepared);
  if (plan->operands.empty()) {
    own.operands = conv_operands(call);
    plan = &own;
  }
  const std::int64_t groups = call.node->attr("group", std::int64_t{1}), group_c = w.dims[1],
                     group_m = w.dims[0] / groups;
  const std::int64_t points = product_of(y.dims, 2, y.dims.size()),
                     image = product_of(x.dims, 2, x.dims.size()), kernel = k / group_c;
  const std::vector<std::int32_t> places = window_places(call);
  const std::int32_t zero = zero_at(call.input(2), 0);
  const auto padding = static_cast<std::uint8_t>(zero);
  std::vector<Correction> corrections;
  for (std::int64_t g = 0; g < groups; ++g)
    corrections.emplace_back(plan->operands[static_cast<std::size_t>(g)], call.input(3), g * group_m, k);
  constexpr std::int64_t kBlock = 16 * kQMaxRows;
  const std::int64_t blocks = (points + kBlock - 1) / kBlock;
  call.pool->parallel_for(x.dims[0] * groups * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t block = task % blocks, g = task / blocks % groups, n = task / blocks / groups;
      const std::uint8_t* const source = x.as<std::uint8_t>() + (n * x.dims[1] + g * group_c) * image;
      std::int32_t* const to = y.mut<std::int32_t>() + (n * y.dims[1] + g * group_m) * points;
      const auto gather = [&](std::int64_t p, std::uint8_t* room) {
        const std::int32_t* const place = places.data() + p * kernel;
        for (std::int64_t c = 0; c < group_c; ++c)
          for (std::int64_t i = 0; i < kernel; ++i)
            room[c * kernel + i] = place[i] < 0 ? padding : source[c * image + place[i]];
        return static_cast<const std::uint8_t*>(room);
      };
      multiply(
          plan->operands[static_cast<std::size_t>(g)], corrections[static_cast<std::size_t>(g)], k,
          is_signed(x), block * kBlock, std::min(points, (block + 1) * kBlock), gather,
          [&](std::int64_t) { return zero; },
          [&](std::int64_t p, std::int64_t m, std::int32_t value) { to[m * points + p] = value; });
    }
  });
}

}  // namespace

void add_integer_kernels(Registry& registry) {
  Kernel kernel;
  kernel.op = "MatMulInteger";
  kernel.name = "MatMulInteger/cpu:gemm";
  kernel.why_not = matmul_why_not;
  kernel.prepare = matmul_prepare;
  kernel.run = run_matmul;
  registry.add(kernel);
  kernel.op = "ConvInteger";
  kernel.name = "ConvInteger/cpu:gemm";
  kernel.why_not = conv_why_not;
  kernel.prepare = conv_prepare;
  kernel.run = run_conv;
  registry.add(kernel);
}

}  // namespace pare
