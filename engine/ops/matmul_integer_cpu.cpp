// MatMulInteger by the tiles of qgemm.h, for one matrix b whatever the rank of a (dynamically quantized
// layers).
//
// Zero points may come with the data (DynamicQuantizeLinear), so neither enters the packing:
//   sum (a - za)(b - zb) = sum a (b - z) - (zb - z) sum a - za (sum b - k zb)
// with z = 0 for int8 and 128 for uint8, which let b be bytes. Sums of rows and columns are exact, too.
#include <algorithm>

#include "engine/ops/integer_ref.h"
#include "engine/ops/qgemm.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

struct Plan {
  bool constant = false;  // packed and sums are of the weight; else they are made in run
  QPacked packed;
  std::vector<std::int32_t> sums;  // of the columns of b
};

bool is_signed(const TensorView& view) { return view.dtype == DType::kI8; }

std::int32_t code_at(const TensorView& view, std::int64_t i) {
  return is_signed(view) ? view.as<std::int8_t>()[i] : view.as<std::uint8_t>()[i];
}

// The zero point that b is packed with.
std::int32_t packed_zero(const TensorView& b) { return is_signed(b) ? 0 : 128; }

std::string why_not(const OpCall& call) {
  if (q_kernels() == nullptr) return "needs AVX2";
  const TensorView &a = call.input(0), &b = call.input(1);
  for (const int i : {0, 1, 2, 3})
    if (call.has(i))
      if (std::string reason = type_reason(call, i, {DType::kI8, DType::kU8}); !reason.empty()) return reason;
  if (a.dims.size() < 2 || b.dims.size() < 2) return "a or b is of rank 1";
  for (std::size_t i = 0; i + 2 < b.dims.size(); ++i)
    if (b.dims[i] != 1) return "b has more than one matrix";
  if (b.dims.size() > a.dims.size()) return "b has a higher rank than a";
  const std::int64_t k = a.dims.back(), n = b.dims.back();
  const std::int64_t rows = k == 0 ? 0 : a.size() / k;
  if (call.has(2) && call.input(2).size() != 1 && call.input(2).size() != rows)
    return "zero points of a are neither one nor one a row";
  if (call.has(3) && call.input(3).size() != 1 && call.input(3).size() != n)
    return "zero points of b are neither one nor one a column";
  if (k > qgemm_max_k({is_signed(a), 0}, {is_signed(b), packed_zero(b)})) return "sums may leave int32";
  return {};
}

void pack(const OpCall& call, Plan& plan) {
  const TensorView& b = call.input(1);
  const std::int64_t k = call.input(0).dims.back(), n = b.dims.back();
  plan.packed = qgemm_pack(q_kernels(), {is_signed(call.input(0)), 0}, {is_signed(b), packed_zero(b)},
                           b.as<std::uint8_t>(), k, n, n, 1);
  plan.sums.assign(static_cast<std::size_t>(n), 0);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t c = 0; c < n; ++c) plan.sums[static_cast<std::size_t>(c)] += code_at(b, i * n + c);
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto plan = std::make_shared<Plan>();
  plan->constant = call.input(1).data != nullptr && call.input(1).size() > 0;
  if (plan->constant) pack(call, *plan);
  return plan;
}

void run(const OpCall& call) {
  const TensorView &a = call.input(0), &b = call.input(1);
  const std::int64_t k = a.dims.back(), n = b.dims.back();
  auto* const y = call.out[0].mut<std::int32_t>();
  if (call.out[0].size() == 0) return;
  if (k == 0) {
    std::fill_n(y, call.out[0].size(), 0);
    return;
  }
  const auto& prepared = *static_cast<const Plan*>(call.prepared);
  Plan own;
  if (!prepared.constant) pack(call, own);
  const Plan& plan = prepared.constant ? prepared : own;
  const QPacked& packed = plan.packed;
  const std::int64_t rows = a.size() / k, panels = packed.panel_count();
  // Of column c: zb - z, and sum b - k zb.
  std::vector<std::int32_t> shift(static_cast<std::size_t>(n)), column(shift);
  for (std::int64_t c = 0; c < n; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const std::int32_t zero = call.has(3) ? code_at(call.input(3), call.input(3).size() == 1 ? 0 : c) : 0;
    shift[at] = zero - packed_zero(b);
    column[at] = static_cast<std::int32_t>(plan.sums[at] - k * zero);
  }
  const bool shifted = std::any_of(shift.begin(), shift.end(), [](std::int32_t v) { return v != 0; });
  const std::int64_t blocks = (rows + kQMaxRows - 1) / kQMaxRows;
  call.pool->parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t stride = packed.row_bytes();
    Tensor memory = Tensor::allocate(DType::kU8, {kQMaxRows * stride});
    auto* const codes = memory.mut<std::uint8_t>();
    std::int32_t out[kQMaxRows * kQMaxPanels * kQPanel];
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kQMaxRows;
      const int count = static_cast<int>(std::min<std::int64_t>(kQMaxRows, rows - first));
      std::int32_t sum_a[kQMaxRows] = {}, zero_a[kQMaxRows] = {};
      for (int r = 0; r < count; ++r) {
        packed.copy(a.as<std::uint8_t>() + (first + r) * k, k, codes + r * stride);
        if (shifted)
          for (std::int64_t i = 0; i < k; ++i) sum_a[r] += code_at(a, (first + r) * k + i);
        if (call.has(2)) zero_a[r] = code_at(call.input(2), call.input(2).size() == 1 ? 0 : first + r);
      }
      for (std::int64_t panel = 0; panel < panels; panel += kQMaxPanels) {
        const int width = static_cast<int>(std::min<std::int64_t>(kQMaxPanels, panels - panel));
        packed.tile(codes, stride, count, panel, width, out);
        const std::int64_t from = panel * kQPanel,
                           columns = std::min<std::int64_t>(width * kQPanel, n - from);
        for (int r = 0; r < count; ++r) {
          std::int32_t* const to = y + (first + r) * n + from;
          const std::int32_t* const sums = out + r * width * kQPanel;
          for (std::int64_t c = 0; c < columns; ++c) {
            const auto at = static_cast<std::size_t>(from + c);
            const std::uint32_t correction =
                static_cast<std::uint32_t>(shift[at]) * static_cast<std::uint32_t>(sum_a[r]) +
                static_cast<std::uint32_t>(zero_a[r]) * static_cast<std::uint32_t>(column[at]);
            to[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[c]) - correction);
          }
        }
      }
    }
  });
}

}  // namespace

void add_matmul_integer_kernel(Registry& registry) {
  Kernel kernel;
  kernel.op = "MatMulInteger";
  kernel.name = "MatMulInteger/cpu:gemm";
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.run = run;
  registry.add(kernel);
}

}  // namespace pare
