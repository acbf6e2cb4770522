// Exact products of 8 bit codes: int32 sums, the same in every bit on every processor.
//
//   acc[r][c] = sum over k of (a[r][k] - za) * (b[k][c] - zb)        a, b: s8 or u8
//
// Every |acc| must stay below 2^31: with ra = the largest |a - za| and rb = the largest |b - zb| that the
// types allow, K * ra * rb < 2^31 (qgemm_max_k). Partial sums may wrap and unwrap; the result is exact then.
//
// Two forms of the operands, both in units of 4 bytes ("steps") along K, so one layout serves all kernels:
//
//   kBytes  a as u8 (an s8 code plus 128), 4 a step; b - zb as s8, so zb must be 0 for s8, 128 for u8.
//           vpdpbusd (AVX-512 VNNI) and tdpbusd (AMX). za leaves through `start`, below.
//   kWords  a - za and b - zb as int16, 2 a step: any zero points. pmaddwd (AVX2, AVX-512): pairs of
//           products of at most 255 * 255, so unlike pmaddubsw it never saturates.
//
//   A  rows of steps * 4 bytes, `stride` bytes apart
//   B  panels of 16 columns: [ceil(n / 16)][steps][16][4 bytes]; missing columns and k are zeros
//   start[c]  what a sum starts from: kBytes -za' * sum over k of (b - zb); kWords 0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/base/tensor.h"

namespace pare {

enum class QForm : std::uint8_t { kWords, kBytes };

inline constexpr int kQPanel = 16;     // columns a panel
inline constexpr int kQMaxRows = 6;    // rows a tile
inline constexpr int kQMaxPanels = 4;  // panels a tile

// One 8 bit operand: its type and zero point (in the range of the type).
struct QType {
  bool is_signed = true;
  std::int32_t zero = 0;

  std::int32_t low() const { return (is_signed ? -128 : 0) - zero; }  // of code - zero
  std::int32_t high() const { return (is_signed ? 127 : 255) - zero; }
};

// The longest K whose sums cannot leave int32.
std::int64_t qgemm_max_k(QType a, QType b);

// What one instruction class brings. Made for isa() by q_kernels(); nullptr for Isa::kScalar.
struct QKernels {
  // out[r][p * 16 + j] = start + products of `rows` (1..6) rows with `panels` (1..4) panels.
  // `out` is [rows][panels * 16].
  using Tile = void (*)(const std::uint8_t* a, std::int64_t stride, int rows, const std::uint8_t* b,
                        std::int64_t panel_bytes, int panels, std::int64_t steps, const std::int32_t* start,
                        std::int32_t* out);
  Tile words = nullptr;
  Tile bytes = nullptr;  // nullptr: the class has no such instruction

  // `lines` lines of n codes, `line_stride` apart, one behind the other into the form of A. Nothing else is
  // read or written.
  void (*copy_words)(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines, std::int64_t n,
                     QType type, std::int16_t* a) = nullptr;
  void (*copy_bytes)(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines, std::int64_t n,
                     std::uint8_t flip, std::uint8_t* a) = nullptr;

  // Depthwise convolution of one output pixel: acc[c] = start[c] + sum over taps t of x[t][shift + c] * w,
  // where w and start are what q_pack_depthwise made for the same form. acc: channels rounded up to 16.
  using Depthwise = void (*)(const std::uint8_t* const* x, std::int64_t shift, bool is_signed, int taps,
                             const void* w, const std::int32_t* start, std::int64_t channels,
                             std::int32_t* acc);
  Depthwise depthwise_words = nullptr;
  Depthwise depthwise_bytes = nullptr;  // nullptr as above
};
const QKernels* q_kernels();

const QKernels* q_kernels_avx2();
const QKernels* q_kernels_avx512();
const QKernels* q_kernels_vnni();

// B in panels, and what must be known of A to multiply with it.
struct QPacked {
  const QKernels* kernels = nullptr;
  QForm form = QForm::kWords;
  QType a_type;
  std::int64_t k = 0, n = 0, steps = 0;
  Tensor memory;  // panels, then start
  const std::uint8_t* panels = nullptr;
  const std::int32_t* start = nullptr;  // [panels * 16]

  std::int64_t panel_count() const { return (n + kQPanel - 1) / kQPanel; }
  std::int64_t panel_bytes() const { return steps * kQPanel * 4; }
  std::int64_t row_bytes() const { return steps * 4; }
  std::int64_t code_bytes() const { return form == QForm::kBytes ? 1 : 2; }  // of one code of A
  // The byte that stands for real zero in an A of form kBytes (in kWords it is 0).
  std::uint8_t zero_byte() const {
    return form == QForm::kBytes ? static_cast<std::uint8_t>(a_type.zero + (a_type.is_signed ? 128 : 0)) : 0;
  }
  // Codes into A at `a`, code_bytes() each.
  void copy_lines(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines, std::int64_t count,
                  void* a) const {
    if (form == QForm::kBytes)
      kernels->copy_bytes(codes, line_stride, lines, count, a_type.is_signed ? 0x80 : 0,
                          static_cast<std::uint8_t*>(a));
    else
      kernels->copy_words(codes, line_stride, lines, count, a_type, static_cast<std::int16_t*>(a));
  }
  void copy(const std::uint8_t* codes, std::int64_t count, void* a) const {
    copy_lines(codes, 0, 1, count, a);
  }
  void fill_zero(std::int64_t count, void* a) const {
    std::memset(a, zero_byte(), static_cast<std::size_t>(count * code_bytes()));
  }
  void tile(const std::uint8_t* a, std::int64_t stride, int rows, std::int64_t panel, int count,
            std::int32_t* out) const {
    (form == QForm::kBytes ? kernels->bytes : kernels->words)(a, stride, rows, panels + panel * panel_bytes(),
                                                              panel_bytes(), count, steps,
                                                              start + panel * kQPanel, out);
  }
};

// Bytes that qgemm_pack needs for [k, n], whatever the form.
std::int64_t qgemm_pack_bytes(std::int64_t k, std::int64_t n);

// Packs b[k][c] at codes[k * stride_k + c * stride_c]. `memory`: at least qgemm_pack_bytes, 64-byte aligned.
void qgemm_pack_into(const QKernels* kernels, QType a_type, QType b_type, const std::uint8_t* codes,
                     std::int64_t k, std::int64_t n, std::int64_t stride_k, std::int64_t stride_c,
                     void* memory, QPacked& packed);
// The same into memory of its own.
QPacked qgemm_pack(const QKernels* kernels, QType a_type, QType b_type, const std::uint8_t* codes,
                   std::int64_t k, std::int64_t n, std::int64_t stride_k, std::int64_t stride_c);

// Weights of a depthwise convolution, code of (channel, tap) at codes[channel * taps + tap], minus their zero
// point. In blocks of 16 channels; missing taps and channels are zeros.
//   kWords  int16 [blocks][ceil(taps / 2)][16][2], channels as unpacklo and unpackhi of the 16 leave them:
//           first those with (channel & 4) == 0
//   kBytes  int8 [blocks][ceil(taps / 4)][16][4]
//   start   [channels rounded up to 16] -(zero point of x, as the form stores it) * sum over taps of w
struct QDepthwise {
  const QKernels* kernels = nullptr;
  QForm form = QForm::kWords;
  Tensor weights, start;

  void pixel(const std::uint8_t* const* x, std::int64_t shift, bool is_signed, int taps,
             std::int64_t channels, std::int32_t* acc) const {
    (form == QForm::kBytes ? kernels->depthwise_bytes : kernels->depthwise_words)(
        x, shift, is_signed, taps, weights.data(), start.as<std::int32_t>(), channels, acc);
  }
};
QDepthwise q_pack_depthwise(const QKernels* kernels, QType x_type, QType w_type, const std::uint8_t* codes,
                            std::int64_t channels, int taps);

}  // namespace pare
