#include "engine/numeric/checkpoint_pack.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "engine/base/error.h"
#include "engine/numeric/pack.h"

namespace pare {
namespace {

constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

void check_bits(int bits) { PARE_ASSERT(bits >= 2 && bits <= 8); }

// Eight codes are kBits whole bytes.
template <int kBits>
std::uint64_t eight(const std::uint8_t* codes) {
  std::uint64_t packed = 0;
  for (int k = 0; k < 8; ++k)
    packed |= static_cast<std::uint64_t>(codes[k] & ((1u << kBits) - 1)) << (k * kBits);
  return packed;
}

template <int kBits>
void pack_odd(const std::uint8_t* codes, std::int64_t n, std::uint8_t* bytes) {
  std::int64_t i = 0;
  for (; i + 24 <= n; i += 8, bytes += kBits) {  // the bytes beyond are those of the codes that follow
    const std::uint64_t packed = eight<kBits>(codes + i);
    std::memcpy(bytes, &packed, sizeof packed);
  }
  for (; i + 8 <= n; i += 8, bytes += kBits) {
    const std::uint64_t packed = eight<kBits>(codes + i);
    std::memcpy(bytes, &packed, kBits);
  }
  std::uint64_t rest = 0;
  for (int k = 0; i + k < n; ++k)
    rest |= static_cast<std::uint64_t>(codes[i + k] & ((1u << kBits) - 1)) << (k * kBits);
  std::memcpy(bytes, &rest, index(packed_bytes(kBits, n - i)));
}

template <int kBits>
void unpack_odd(const std::uint8_t* bytes, std::uint8_t* codes, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 24 <= n; i += 8, bytes += kBits) {  // eight bytes are there
    std::uint64_t packed;
    std::memcpy(&packed, bytes, sizeof packed);
    for (int k = 0; k < 8; ++k)
      codes[i + k] = static_cast<std::uint8_t>(packed >> (k * kBits) & ((1u << kBits) - 1));
  }
  for (; i < n; i += 8, bytes += kBits) {
    const std::int64_t count = std::min<std::int64_t>(8, n - i);
    std::uint64_t packed = 0;
    std::memcpy(&packed, bytes, count == 8 ? kBits : index(packed_bytes(kBits, count)));
    for (int k = 0; k < count; ++k)
      codes[i + k] = static_cast<std::uint8_t>(packed >> (k * kBits) & ((1u << kBits) - 1));
  }
}

// One stream from a whole byte on, its unused bits 0.
void pack_stream(int bits, const std::uint8_t* codes, std::int64_t n, std::uint8_t* bytes) {
  switch (bits) {
    case 3:
      return pack_odd<3>(codes, n, bytes);
    case 5:
      return pack_odd<5>(codes, n, bytes);
    case 6:
      return pack_odd<6>(codes, n, bytes);
    case 7:
      return pack_odd<7>(codes, n, bytes);
    default:
      return pack_codes(bits, codes, bytes, n);
  }
}

void unpack_stream(int bits, const std::uint8_t* bytes, std::uint8_t* codes, std::int64_t n) {
  switch (bits) {
    case 3:
      return unpack_odd<3>(bytes, codes, n);
    case 5:
      return unpack_odd<5>(bytes, codes, n);
    case 6:
      return unpack_odd<6>(bytes, codes, n);
    case 7:
      return unpack_odd<7>(bytes, codes, n);
    default:
      return unpack_codes(bits, bytes, codes, n);
  }
}

// Codes at a time: a multiple of 8 that the first cache holds with what becomes of it.
constexpr std::int64_t kPiece = 4096;

}  // namespace

void pack_rows(int bits, const std::uint8_t* codes, std::int64_t rows, std::int64_t cols, std::uint32_t* to,
               std::uint8_t flip) {
  check_bits(bits);
  const std::int64_t words = stream_words(cols, bits);
  if (cols * bits == 32 * words) {  // no padding: one stream
    cols *= rows;
    rows = 1;
  }
  std::uint8_t flipped[kPiece];
  for (std::int64_t r = 0; r < rows; ++r) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(to + r * words);
    const std::uint8_t* row = codes + r * cols;
    for (std::int64_t c = 0; c < cols; c += kPiece) {
      const std::int64_t n = std::min(kPiece, cols - c);
      const std::uint8_t* piece = row + c;
      if (flip != 0) {
        for (std::int64_t i = 0; i < n; ++i) flipped[i] = static_cast<std::uint8_t>(piece[i] ^ flip);
        piece = flipped;
      }
      pack_stream(bits, piece, n, bytes + c * bits / 8);
    }
    if (cols * bits % 32 != 0) {
      const std::int64_t used = packed_bytes(bits, cols);
      std::memset(bytes + used, 0, index(4 * words - used));
    }
  }
}

void unpack_rows(int bits, const std::uint32_t* words, std::int64_t rows, std::int64_t cols,
                 std::uint8_t* codes, int less) {
  check_bits(bits);
  const std::int64_t each = stream_words(cols, bits);
  if (cols * bits == 32 * each) {
    cols *= rows;
    rows = 1;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(words + r * each);
    for (std::int64_t c = 0; c < cols; c += kPiece) {
      const std::int64_t n = std::min(kPiece, cols - c);
      std::uint8_t* piece = codes + r * cols + c;
      unpack_stream(bits, bytes + c * bits / 8, piece, n);
      if (less != 0)
        for (std::int64_t i = 0; i < n; ++i) piece[i] = static_cast<std::uint8_t>(piece[i] - less);
    }
  }
}

std::vector<std::uint32_t> pack_rows(int bits, const std::uint8_t* codes, std::int64_t rows,
                                     std::int64_t cols) {
  std::vector<std::uint32_t> out(index(rows * stream_words(cols, bits)));
  pack_rows(bits, codes, rows, cols, out.data());
  return out;
}

std::vector<std::uint8_t> unpack_rows(int bits, const std::uint32_t* words, std::int64_t rows,
                                      std::int64_t cols) {
  std::vector<std::uint8_t> out(index(rows * cols));
  unpack_rows(bits, words, rows, cols, out.data());
  return out;
}

std::vector<std::uint32_t> pack_columns(int bits, const std::uint8_t* codes, std::int64_t rows,
                                        std::int64_t cols) {
  check_bits(bits);
  const std::uint32_t mask = (1u << bits) - 1;
  std::vector<std::uint32_t> out(index(stream_words(rows, bits) * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t bit = r * bits;
    const int shift = static_cast<int>(bit % 32);
    std::uint32_t* to = out.data() + bit / 32 * cols;
    const std::uint8_t* from = codes + r * cols;
    for (std::int64_t c = 0; c < cols; ++c) to[c] |= (from[c] & mask) << shift;
    if (shift + bits <= 32) continue;
    to += cols;
    for (std::int64_t c = 0; c < cols; ++c) to[c] |= (from[c] & mask) >> (32 - shift);
  }
  return out;
}

std::vector<std::uint8_t> unpack_columns(int bits, const std::uint32_t* words, std::int64_t rows,
                                         std::int64_t cols) {
  check_bits(bits);
  const std::uint32_t mask = (1u << bits) - 1;
  std::vector<std::uint8_t> out(index(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t bit = r * bits;
    const int shift = static_cast<int>(bit % 32);
    const std::uint32_t *from = words + bit / 32 * cols, *next = from + cols;
    std::uint8_t* to = out.data() + r * cols;
    if (shift + bits <= 32)
      for (std::int64_t c = 0; c < cols; ++c) to[c] = static_cast<std::uint8_t>(from[c] >> shift & mask);
    else
      for (std::int64_t c = 0; c < cols; ++c)
        to[c] = static_cast<std::uint8_t>((from[c] >> shift | next[c] << (32 - shift)) & mask);
  }
  return out;
}

namespace {

// 16x16 of them; rows are `from_stride` and `to_stride` apart.
void transpose_tile(const std::uint8_t* from, std::int64_t from_stride, std::uint8_t* to,
                    std::int64_t to_stride) {
#if defined(__SSE2__)
  __m128i a[16], b[16];
  for (int i = 0; i < 16; ++i)
    a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_stride));
  // Rows i and i + 8 byte by byte, four times: row r of the result is then column r.
  const auto interleave = [](const __m128i* x, __m128i* y) {
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = _mm_unpacklo_epi8(x[i], x[i + 8]);
      y[2 * i + 1] = _mm_unpackhi_epi8(x[i], x[i + 8]);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  interleave(b, a);
  for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_stride), a[i]);
#else
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[j * to_stride + i] = from[i * from_stride + j];
#endif
}

}  // namespace

void transpose_bytes(const std::uint8_t* from, std::int64_t rows, std::int64_t cols, std::uint8_t* to) {
  // Lines of both sides are used up while the cache has them, also where rows are powers of two apart.
  constexpr std::int64_t kTile = 16, kAtOnce = 64;
  const std::int64_t even_rows = rows - rows % kTile, even_cols = cols - cols % kTile;
  for (std::int64_t top = 0; top < even_rows; top += kAtOnce)
    for (std::int64_t left = 0; left < even_cols; left += kTile)
      for (std::int64_t r = top; r < std::min(top + kAtOnce, even_rows); r += kTile)
        transpose_tile(from + r * cols + left, cols, to + left * rows + r, rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = r < even_rows ? even_cols : 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
}

std::vector<std::uint32_t> pack_awq(const std::uint8_t* codes, std::int64_t rows, std::int64_t cols) {
  PARE_ASSERT(cols % 8 == 0);
  std::vector<std::uint32_t> out(index(rows * cols / 8));
  for (std::int64_t i = 0; i < rows * cols / 8; ++i)
    for (int nibble = 0; nibble < 8; ++nibble)
      out[index(i)] |= static_cast<std::uint32_t>(codes[i * 8 + kAwqOrder[nibble]] & 15) << (4 * nibble);
  return out;
}

std::vector<std::uint8_t> unpack_awq(const std::uint32_t* words, std::int64_t rows, std::int64_t cols) {
  PARE_ASSERT(cols % 8 == 0);
  std::vector<std::uint8_t> out(index(rows * cols));
  for (std::int64_t i = 0; i < rows * cols / 8; ++i)
    for (int nibble = 0; nibble < 8; ++nibble)
      out[index(i * 8 + kAwqOrder[nibble])] = static_cast<std::uint8_t>(words[i] >> (4 * nibble) & 15);
  return out;
}

std::vector<std::uint32_t> pack_gptq_zeros(int bits, GptqVersion version, const std::uint8_t* zeros,
                                           std::int64_t groups, std::int64_t outs) {
  PARE_ASSERT(outs * bits % 32 == 0);
  std::vector<std::uint8_t> stored(zeros, zeros + groups * outs);
  if (version == GptqVersion::kV1)
    for (std::uint8_t& zero : stored) {
      if (zero == 0)
        throw make_error(ErrorCode::kUnsupported, "GPTQ version 1 cannot hold a zero point of 0")
            .hint("write gptq_v2, or symmetric weights");
      --zero;
    }
  return pack_rows(bits, stored.data(), groups, outs);
}

std::vector<std::uint8_t> unpack_gptq_zeros(int bits, GptqVersion version, const std::uint32_t* words,
                                            std::int64_t groups, std::int64_t outs) {
  std::vector<std::uint8_t> zeros = unpack_rows(bits, words, groups, outs);
  if (version == GptqVersion::kV1)
    for (std::uint8_t& zero : zeros) ++zero;  // up to 2^bits, as its readers compute it
  return zeros;
}

std::vector<std::uint8_t> pack_modelopt_int4(const std::uint8_t* codes, std::int64_t outs, std::int64_t ins) {
  PARE_ASSERT(outs % 2 == 0);
  std::vector<std::uint8_t> out(index(outs / 2 * ins));
  for (std::int64_t o = 0; o < outs; o += 2)
    for (std::int64_t i = 0; i < ins; ++i)
      out[index(o / 2 * ins + i)] =
          static_cast<std::uint8_t>((codes[o * ins + i] & 15) | (codes[(o + 1) * ins + i] & 15) << 4);
  return out;
}

std::vector<std::uint8_t> unpack_modelopt_int4(const std::uint8_t* bytes, std::int64_t outs,
                                               std::int64_t ins) {
  PARE_ASSERT(outs % 2 == 0);
  std::vector<std::uint8_t> out(index(outs * ins));
  for (std::int64_t o = 0; o < outs; o += 2)
    for (std::int64_t i = 0; i < ins; ++i) {
      out[index(o * ins + i)] = bytes[o / 2 * ins + i] & 15;
      out[index((o + 1) * ins + i)] = static_cast<std::uint8_t>(bytes[o / 2 * ins + i] >> 4);
    }
  return out;
}

}  // namespace pare
