#include "engine/numeric/checkpoint_pack.h"

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Code `at` of a stream whose words are `stride` apart.
void put(std::uint32_t* words, std::int64_t stride, int bits, std::int64_t at, std::uint32_t code) {
  const std::int64_t bit = at * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  words[word * stride] |= code << shift;
  if (shift + bits > 32) words[(word + 1) * stride] |= code >> (32 - shift);
}

std::uint8_t get(const std::uint32_t* words, std::int64_t stride, int bits, std::int64_t at) {
  const std::int64_t bit = at * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  std::uint32_t code = words[word * stride] >> shift;
  if (shift + bits > 32) code |= words[(word + 1) * stride] << (32 - shift);
  return static_cast<std::uint8_t>(code & ((1u << bits) - 1));
}

void check_bits(int bits) { PARE_ASSERT(bits >= 2 && bits <= 8); }

}  // namespace

std::vector<std::uint32_t> pack_rows(int bits, const std::uint8_t* codes, std::int64_t rows,
                                     std::int64_t cols) {
  check_bits(bits);
  const std::int64_t words = stream_words(cols, bits);
  const std::uint32_t mask = (1u << bits) - 1;
  std::vector<std::uint32_t> out(index(rows * words));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      put(out.data() + r * words, 1, bits, c, codes[r * cols + c] & mask);
  return out;
}

std::vector<std::uint8_t> unpack_rows(int bits, const std::uint32_t* words, std::int64_t rows,
                                      std::int64_t cols) {
  check_bits(bits);
  const std::int64_t each = stream_words(cols, bits);
  std::vector<std::uint8_t> out(index(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) out[index(r * cols + c)] = get(words + r * each, 1, bits, c);
  return out;
}

std::vector<std::uint32_t> pack_columns(int bits, const std::uint8_t* codes, std::int64_t rows,
                                        std::int64_t cols) {
  check_bits(bits);
  const std::uint32_t mask = (1u << bits) - 1;
  std::vector<std::uint32_t> out(index(stream_words(rows, bits) * cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) put(out.data() + c, cols, bits, r, codes[r * cols + c] & mask);
  return out;
}

std::vector<std::uint8_t> unpack_columns(int bits, const std::uint32_t* words, std::int64_t rows,
                                         std::int64_t cols) {
  check_bits(bits);
  std::vector<std::uint8_t> out(index(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) out[index(r * cols + c)] = get(words + c, cols, bits, r);
  return out;
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
