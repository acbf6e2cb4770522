// pare.WMatMul: codes are packed once, in prepare (wmatmul.h has the layout).
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/f16.h"
#include "engine/numeric/ggml_codes.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/matmul/wmatmul.h"
#include "engine/ops/registry.h"
#include "engine/ops/thread_slots.h"

namespace pare {
namespace {

using Shift = WMatMulTask::Shift;
using Byte = std::uint8_t;
constexpr std::int64_t kCodesOfWord = 8;

struct Prepared {
  WMatMulShape shape;
  int bits = 4;
  bool half = false;
  Shift shift = Shift::kNone;
  float values[16] = {};
  bool counted = false;
  std::int64_t lanes = 1, panel = 1;                // columns
  std::int64_t column_bytes = 0;                    // packed, of one column
  std::shared_ptr<const Tensor> packed;             // panels, one behind the other
  std::shared_ptr<const std::vector<Byte>> folded;  // a panel: WMatMulTask::folded
};

std::string why_not(const OpCall& call) {
  WMatMulShape shape;
  return resolve_wmatmul(call, shape);
}

// Columns of codes and scales, whatever form they lie in. Codes of 4 bits are indices into values(), of 8
// bits int8.
class Columns {
 public:
  Columns(const OpCall& call, const WMatMulShape& shape) : call_(call), s_(shape) {
    const DType type = call.in[1].dtype;
    if (s_.coding != nullptr) {
      bits = s_.coding->bits;
      shift = s_.coding->offsets ? Shift::kOffset : Shift::kNone;
      std::copy_n(s_.coding->values, 16, values);
      return;
    }
    bits = pare::bits(type) == 8 ? 8 : 4;
    flip_ = type == DType::kU8 ? 128 : 0;
    shift = call.has(3) || flip_ != 0 ? Shift::kZero : Shift::kNone;
    if (bits == 8) return;
    const Byte fours[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE}, twos = 0xE4;
    if (pare::bits(type) != 4) {
      decode(type, &twos, values, 4);
      return;
    }
    decode(type, fours, values, 16);
    if (type != DType::kI4) return;
    swap_ = 8;  // -8 .. 7 in order
    std::rotate(values, values + 8, values + 16);
  }
  bool counted() const {
    bool all = bits == 4;
    for (int i = 0; i < 16; ++i) all = all && values[i] == values[0] + static_cast<float>(i);
    return all;
  }

  int bits = 4;
  Shift shift = Shift::kNone;
  float values[16] = {};

  // K codes, and a scale and an other parameter a group.
  void read(std::int64_t n, Byte* codes, float* scales, float* others) const {
    if (s_.blocks != nullptr) {
      const std::int64_t count = s_.k / s_.blocks->block, groups = s_.blocks->block / s_.group;
      const Byte* from = call_.in[1].as<Byte>() + n * count * s_.blocks->bytes;
      for (std::int64_t b = 0; b < count; ++b)
        s_.coding->split(from + b * s_.blocks->bytes, codes + b * s_.blocks->block, scales + b * groups,
                         others + b * groups);
      return;
    }
    const Byte* from = call_.in[1].as<Byte>();
    const int width = pare::bits(call_.in[1].dtype), per_byte = 8 / width, mask = (1 << width) - 1;
    std::int64_t at = n * s_.code_step_n;
    for (std::int64_t k = 0; k < s_.k; ++k, at += s_.code_step_k)
      codes[k] = width == 8
                     ? static_cast<Byte>(from[at] ^ flip_)
                     : static_cast<Byte>(from[at / per_byte] >> (at % per_byte * width) & mask) ^ swap_;
    for (std::int64_t g = 0; g < s_.groups; ++g) {
      const std::int64_t i = g * s_.scale_step_k + n * s_.scale_step_n;
      scales[g] = call_.in[2].as<float>()[i];
      others[g] = zero(i) - static_cast<float>(flip_);
    }
  }

 private:
  float zero(std::int64_t i) const {
    if (!call_.has(3)) return 0;
    const int width = pare::bits(call_.in[3].dtype);
    const auto code = static_cast<Byte>(call_.in[3].as<Byte>()[i * width / 8] >> (i * width % 8));
    float all[8];
    decode(call_.in[3].dtype, &code, all, 1);
    return all[0];
  }

  const OpCall& call_;
  const WMatMulShape& s_;
  int flip_ = 0;   // int8 of uint8
  Byte swap_ = 0;  // halves of the 16 codes
};

bool is_half(float x) {
  return std::bit_cast<std::uint32_t>(decode_f16(encode_f16(x))) == std::bit_cast<std::uint32_t>(x);
}

bool all_half(const Columns& columns, const WMatMulShape& s, ThreadPool& pool) {
  std::atomic<bool> all{true};
  pool.parallel_for(s.n, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Byte> codes(static_cast<std::size_t>(s.k));
    std::vector<float> scales(static_cast<std::size_t>(s.groups)), others(scales.size());
    for (std::int64_t n = begin; n < end && all.load(std::memory_order_relaxed); ++n) {
      columns.read(n, codes.data(), scales.data(), others.data());
      for (std::size_t g = 0; g < scales.size(); ++g)
        if (!is_half(scales[g]) || (columns.shift != Shift::kNone && !is_half(others[g]))) all.store(false);
    }
  });
  return all.load();
}

// One column into its place: `width` columns lie side by side.
class ColumnWriter {
 public:
  ColumnWriter(const Prepared& p, Byte* panel, std::int64_t width, std::int64_t column)
      : p_(p), at_(panel), width_(width), column_(column) {}

  void write(const Byte* codes, const float* scales, const float* others) {
    const WMatMulShape& s = p_.shape;
    for (std::int64_t g = 0; g < s.groups; ++g) {
      parameter(scales[g]);
      if (p_.shift != Shift::kNone) parameter(others[g]);
      const Byte* from = codes + g * s.group;
      const std::int64_t count = std::min(s.group, s.k - g * s.group);
      if (p_.bits == 8) {
        for (std::int64_t i = 0; i < count; ++i) at_[i * width_ + column_] = from[i];
        at_ += count * width_;
        continue;
      }
      for (std::int64_t i = 0; i < count; i += kCodesOfWord) {
        std::uint32_t word = 0;
        for (std::int64_t j = 0; j < std::min(kCodesOfWord, count - i); ++j)
          word |= static_cast<std::uint32_t>(from[i + j]) << (4 * j);
        std::memcpy(at_ + 4 * column_, &word, sizeof word);
        at_ += 4 * width_;
      }
    }
  }

 private:
  void parameter(float x) {
    if (p_.half) {
      const std::uint16_t code = encode_f16(x);
      std::memcpy(at_ + 2 * column_, &code, sizeof code);
      at_ += 2 * width_;
    } else {
      std::memcpy(at_ + 4 * column_, &x, sizeof x);
      at_ += 4 * width_;
    }
  }

  const Prepared& p_;
  Byte* at_;
  std::int64_t width_, column_;
};

std::int64_t bytes_of_column(const Prepared& p) {
  const WMatMulShape& s = p.shape;
  const std::int64_t last = s.k - (s.groups - 1) * s.group;
  const auto codes = [&](std::int64_t count) {
    return p.bits == 8 ? count : (count + kCodesOfWord - 1) / kCodesOfWord * 4;
  };
  if (s.groups == 0) return 0;
  return s.groups * (p.half ? 2 : 4) * (p.shift == Shift::kNone ? 1 : 2) + (s.groups - 1) * codes(s.group) +
         codes(last);
}

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  if (call.prepared != nullptr) {  // codes are constants, so all but the rows is the same
    *p = *static_cast<const Prepared*>(call.prepared);
    resolve_wmatmul(call, p->shape);
    return p;
  }
  const std::string why = resolve_wmatmul(call, p->shape);
  PARE_ASSERT(why.empty());
  const WMatMulShape& s = p->shape;
  p->lanes = PARE_SIMD_PICK(wmatmul_lanes)();
  p->panel = PARE_SIMD_PICK(wmatmul_panel)();
  const Columns columns(call, s);
  p->bits = columns.bits;
  p->shift = columns.shift;
  std::copy_n(columns.values, 16, p->values);
  p->counted = columns.counted();
  p->half = all_half(columns, s, *call.pool);
  p->column_bytes = bytes_of_column(*p);
  Tensor packed = Tensor::allocate(DType::kU8, {p->column_bytes * round_up(s.n, p->lanes)});
  auto* bytes = packed.mut<Byte>();
  const std::int64_t panels = (s.n + p->panel - 1) / p->panel;
  std::vector<Byte> folded(static_cast<std::size_t>(panels), Byte{p->counted});
  call.pool->parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Byte> codes(static_cast<std::size_t>(s.k));
    std::vector<float> scales(static_cast<std::size_t>(s.groups)), others(scales.size());
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const std::int64_t first = panel * p->panel,
                         width = std::min(p->panel, round_up(s.n - first, p->lanes));
      for (std::int64_t n = first; n < first + width; ++n) {
        if (n < s.n) {
          columns.read(n, codes.data(), scales.data(), others.data());
          Byte& folds = folded[static_cast<std::size_t>(panel)];
          for (std::size_t g = 0; g < scales.size() && folds != 0; ++g)
            folds = Byte{wmatmul_folds(p->shift, p->values[0], scales[g], others[g])};
        } else {  // lanes without a column
          std::fill(codes.begin(), codes.end(), Byte{0});
          std::fill(scales.begin(), scales.end(), 0.0f);
          std::fill(others.begin(), others.end(), 0.0f);
        }
        ColumnWriter(*p, bytes + first * p->column_bytes, width, n - first)
            .write(codes.data(), scales.data(), others.data());
      }
    }
  });
  p->packed = std::make_shared<const Tensor>(std::move(packed));
  p->folded = std::make_shared<const std::vector<Byte>>(std::move(folded));
  return p;
}

// Up to as many rows walk the codes themselves; from there on a panel of floats is made of them once.
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kWorthAThread = 1 << 15;  // multiply-adds
constexpr std::int64_t kRowsOfPart = 96;

void run(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const WMatMulShape& s = p.shape;
  if (call.out[0].size() == 0) return;
  WMatMulTask task;
  task.lda = task.k = s.k;
  task.ldc = task.ldr = s.n;
  task.m = s.m;
  task.group = s.group;
  task.bits = p.bits;
  task.half = p.half;
  task.shift = p.shift;
  task.values = p.values;
  task.counted = p.counted;
  task.act = &s.act;
  task.a = call.in[0].as<float>();
  task.c = call.out[0].mut<float>();
  if (call.has(4)) task.bias = call.in[4].as<float>();
  if (call.has(5)) task.residual = call.in[5].as<float>();
  const auto panel_of = [&](std::int64_t panel) {
    const std::int64_t first = panel * p.panel;
    WMatMulTask one = task;
    one.n = std::min(p.panel, s.n - first);
    one.folded = (*p.folded)[static_cast<std::size_t>(panel)] != 0;
    one.b = p.packed->as<Byte>() + first * p.column_bytes;
    one.c += first;
    if (one.bias != nullptr) one.bias += first;
    if (one.residual != nullptr) one.residual += first;
    return one;
  };
  const std::int64_t panels = (s.n + p.panel - 1) / p.panel;
  if (s.m <= kFewRows) {
    const auto rows = PARE_SIMD_PICK(wmatmul_rows);
    call.pool->parallel_for(panels, grain_for(kWorthAThread, p.panel * s.k * s.m),
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t panel = begin; panel < end; ++panel) rows(panel_of(panel));
                            });
    return;
  }
  // Few panels beside the threads: rows are shared out too, and a panel is unpacked for each part.
  const std::int64_t threads = call.pool->threads();
  const std::int64_t parts = threads == 1 ? 1
                                          : std::clamp<std::int64_t>((4 * threads + panels - 1) / panels, 1,
                                                                     (s.m + kRowsOfPart - 1) / kRowsOfPart);
  const std::int64_t floats = round_up(s.k * p.panel, 16);
  float* scratch = call.scratch->take<float>(floats * threads);
  ThreadSlots slots(*call.pool);
  const auto unpack = PARE_SIMD_PICK(wmatmul_unpack);
  const auto multiply = PARE_SIMD_PICK(gemm_f32_task);
  call.pool->parallel_for(panels * parts, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadSlots::Slot slot(slots);
    float* room = scratch + slot.index() * floats;
    std::int64_t unpacked = -1;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t panel = unit / parts, part = unit % parts;
      const WMatMulTask one = panel_of(panel);
      if (unpacked != panel) unpack(one, room);
      unpacked = panel;
      for (std::int64_t row = s.m * part / parts; row < s.m * (part + 1) / parts;) {
        GemmTask gemm;
        gemm.m = std::min(kRowsOfPart, s.m * (part + 1) / parts - row);
        gemm.k = s.k;
        gemm.n = one.n;
        gemm.a = one.a + row * s.k;
        gemm.lda = s.k;
        gemm.b = room;
        gemm.c = one.c + row * s.n;
        gemm.ldc = gemm.ldr = s.n;
        gemm.panel_end = gemm_panels(one.n);
        gemm.bias = one.bias;
        gemm.residual = one.residual == nullptr ? nullptr : one.residual + row * s.n;
        gemm.act = s.act;
        multiply(gemm);
        row += gemm.m;
      }
    }
  });
}

}  // namespace

void add_wmatmul_kernels(Registry& registry) {
  Kernel kernel;
  kernel.domain = "pare";
  kernel.op = "WMatMul";
  kernel.name = "pare.WMatMul/cpu:panels";
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.share = PreparedShare::kConstants;
  kernel.run = run;
  kernel.in_place = 1u << 5;  // the residual: each of its elements is read just before its sum is written
  registry.add(kernel);
}

}  // namespace pare
