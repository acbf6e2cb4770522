#include "engine/ops/integer/qgemm.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/isa.h"

namespace pare {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Four bytes that one lane reads in one step, for column c: k from `first` on.
template <typename Code, typename Stored, int kPerStep>
void pack_panels(const Code* codes, std::int64_t k, std::int64_t n, std::int64_t stride_k,
                 std::int64_t stride_c, std::int32_t zero, std::int64_t steps, Stored* out) {
  const std::int64_t panels = (n + kQPanel - 1) / kQPanel;
  const std::int64_t whole_steps = k / kPerStep;
  for (std::int64_t p = 0; p < panels; ++p) {
    const std::int64_t columns = std::min<std::int64_t>(kQPanel, n - p * kQPanel);
    const Code* from = codes + p * kQPanel * stride_c;
    Stored* to = out + p * steps * kQPanel * kPerStep;
    for (std::int64_t s = 0; s < steps; ++s, to += kQPanel * kPerStep) {
      if (s >= whole_steps || columns < kQPanel) std::fill(to, to + kQPanel * kPerStep, Stored{0});
      const int depth = static_cast<int>(std::min<std::int64_t>(kPerStep, k - s * kPerStep));
      for (int i = 0; i < depth; ++i) {
        const Code* row = from + (s * kPerStep + i) * stride_k;
        for (std::int64_t c = 0; c < columns; ++c)
          to[c * kPerStep + i] = static_cast<Stored>(row[c * stride_c] - zero);
      }
    }
  }
}

template <typename Stored, int kPerStep>
void pack_any(QType type, const std::uint8_t* codes, std::int64_t k, std::int64_t n, std::int64_t stride_k,
              std::int64_t stride_c, std::int64_t steps, void* out) {
  auto* to = static_cast<Stored*>(out);
  if (type.is_signed)
    pack_panels<std::int8_t, Stored, kPerStep>(reinterpret_cast<const std::int8_t*>(codes), k, n, stride_k,
                                               stride_c, type.zero, steps, to);
  else
    pack_panels<std::uint8_t, Stored, kPerStep>(codes, k, n, stride_k, stride_c, type.zero, steps, to);
}

// start[c] = -za' * the sum of column c, by the kernel itself: one row of A that is all ones.
void set_start(QPacked& packed, std::int32_t* start) {
  const std::int64_t panels = packed.panel_count();
  std::fill(start, start + panels * kQPanel, 0);
  const std::int32_t zero = packed.zero_byte();
  if (packed.form == QForm::kWords || zero == 0) return;
  alignas(64) std::uint8_t ones[256];
  std::memset(ones, 1, sizeof ones);
  alignas(64) std::int32_t sums[kQPanel];
  for (std::int64_t p = 0; p < panels; ++p) {
    std::int32_t* to = start + p * kQPanel;
    for (std::int64_t s = 0; s < packed.steps; s += 64) {
      packed.kernels->bytes(ones, 0, 1, packed.panels + p * packed.panel_bytes() + s * kQPanel * 4, 0, 1,
                            std::min<std::int64_t>(64, packed.steps - s), to, sums);
      std::copy(sums, sums + kQPanel, to);
    }
    for (int c = 0; c < kQPanel; ++c)  // may wrap, as the sums that it corrects
      to[c] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(to[c]) * static_cast<std::uint32_t>(-zero));
  }
}

}  // namespace

std::int64_t qgemm_max_k(QType a, QType b) {
  const std::int64_t ra = std::max(-a.low(), a.high()), rb = std::max(-b.low(), b.high());
  return ((std::int64_t{1} << 31) - 1) / (ra * rb);
}

const QKernels* q_kernels() {
  if (isa() >= Isa::kAvx512Vnni) return q_kernels_vnni();
  if (isa() >= Isa::kAvx512) return q_kernels_avx512();
  return isa() >= Isa::kAvx2 ? q_kernels_avx2() : nullptr;
}

std::int64_t qgemm_pack_bytes(std::int64_t k, std::int64_t n) {
  const std::int64_t columns = round_up(n, kQPanel);
  return columns * (round_up(k, 2) * 2 + 4) + 64;
}

void qgemm_pack_into(const QKernels* kernels, QType a_type, QType b_type, const std::uint8_t* codes,
                     std::int64_t k, std::int64_t n, std::int64_t stride_k, std::int64_t stride_c,
                     void* memory, QPacked& packed) {
  PARE_ASSERT(kernels != nullptr && k <= qgemm_max_k(a_type, b_type));
  const bool fits_s8 = b_type.low() == -128;
  packed.kernels = kernels;
  packed.form = kernels->bytes != nullptr && fits_s8 ? QForm::kBytes : QForm::kWords;
  packed.a_type = a_type;
  packed.k = k;
  packed.n = n;
  packed.steps = (k + (packed.form == QForm::kBytes ? 3 : 1)) / (packed.form == QForm::kBytes ? 4 : 2);
  auto* panels = static_cast<std::uint8_t*>(memory);
  packed.panels = panels;
  if (packed.form == QForm::kBytes)
    pack_any<std::int8_t, 4>(b_type, codes, k, n, stride_k, stride_c, packed.steps, panels);
  else
    pack_any<std::int16_t, 2>(b_type, codes, k, n, stride_k, stride_c, packed.steps, panels);
  auto* start = reinterpret_cast<std::int32_t*>(panels + packed.panel_count() * packed.panel_bytes());
  packed.start = start;
  set_start(packed, start);
}

QPacked qgemm_pack(const QKernels* kernels, QType a_type, QType b_type, const std::uint8_t* codes,
                   std::int64_t k, std::int64_t n, std::int64_t stride_k, std::int64_t stride_c) {
  Tensor memory = Tensor::allocate(DType::kU8, {qgemm_pack_bytes(k, n)});
  QPacked packed;
  qgemm_pack_into(kernels, a_type, b_type, codes, k, n, stride_k, stride_c, memory.mut<std::uint8_t>(),
                  packed);
  packed.memory = memory;
  return packed;
}

QDepthwise q_pack_depthwise(const QKernels* kernels, QType x_type, QType w_type, const std::uint8_t* codes,
                            std::int64_t channels, int taps) {
  QDepthwise packed;
  packed.kernels = kernels;
  packed.form = kernels->depthwise_bytes != nullptr && w_type.low() == -128 ? QForm::kBytes : QForm::kWords;
  const bool bytes = packed.form == QForm::kBytes;
  const std::int64_t padded = round_up(channels, kQPanel), each = bytes ? 4 : 2,
                     groups = (taps + each - 1) / each;
  packed.weights =
      Tensor::allocate(bytes ? DType::kI8 : DType::kI16, {padded / kQPanel, groups, kQPanel, each});
  packed.start = Tensor::allocate(DType::kI32, {padded});
  auto* start = packed.start.mut<std::int32_t>();
  void* out =
      bytes ? static_cast<void*>(packed.weights.mut<std::int8_t>()) : packed.weights.mut<std::int16_t>();
  const std::int32_t zero = x_type.zero + (bytes && x_type.is_signed ? 128 : 0);
  for (std::int64_t place = 0; place < padded; ++place) {
    const std::int64_t block = place / kQPanel, at = place % kQPanel;
    const std::int64_t in_block = bytes ? at : at % 8 / 4 * 8 + at / 8 * 4 + at % 4;
    const std::int64_t channel = block * kQPanel + in_block;
    std::int32_t sum = 0;
    for (std::int64_t tap = 0; tap < groups * each; ++tap) {
      std::int32_t value = 0;
      if (channel < channels && tap < taps) {
        const std::uint8_t code = codes[channel * taps + tap];
        value = (w_type.is_signed ? static_cast<std::int8_t>(code) : code) - w_type.zero;
      }
      sum += value;
      const std::int64_t index = ((block * groups + tap / each) * kQPanel + at) * each + tap % each;
      if (bytes)
        static_cast<std::int8_t*>(out)[index] = static_cast<std::int8_t>(value);
      else
        static_cast<std::int16_t*>(out)[index] = static_cast<std::int16_t>(value);
    }
    start[channel] = -zero * sum;
  }
  return packed;
}

}  // namespace pare
