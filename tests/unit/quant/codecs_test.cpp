// Golden vectors of other projects' packers and quantizers (tests/golden/codecs), bit by bit.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/checkpoint_pack.h"
#include "engine/numeric/e2m1.h"
#include "engine/numeric/pack.h"
#include "quant/grid/ct_arithmetic.h"
#include "tests/unit/test_paths.h"

namespace pare::quant {
namespace {

Json golden(const char* name) {
  std::ifstream file(source_path(std::string("tests/golden/codecs/") + name));
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), name);
}

template <typename T>
std::vector<T> flat(const Json& rows) {
  std::vector<T> out;
  for (const Json& row : rows) {
    if (row.is_array())
      for (const Json& v : row) out.push_back(static_cast<T>(v.get<double>()));
    else
      out.push_back(static_cast<T>(row.get<double>()));
  }
  return out;
}

// Words as signed decimals.
std::vector<std::uint32_t> words(const Json& rows) {
  std::vector<std::uint32_t> out;
  for (const std::int64_t v : flat<std::int64_t>(rows)) out.push_back(static_cast<std::uint32_t>(v));
  return out;
}

std::vector<std::uint8_t> codes_of(const std::vector<int>& values, int bits) {
  std::vector<std::uint8_t> codes;
  for (const int v : values) codes.push_back(signed_to_code(v, bits));
  return codes;
}

TEST(Codecs, CompressedTensorsRows) {
  const Json all = golden("ct_golden.json");
  int seen = 0;
  for (const auto& [key, entry] : all.items()) {
    if (key.rfind("ct_pack_int", 0) != 0) continue;
    ++seen;
    const int bits = key[11] - '0';
    const auto rows = static_cast<std::int64_t>(entry["q"].size()),
               cols = static_cast<std::int64_t>(entry["q"][0].size());
    const std::vector<std::uint8_t> codes = codes_of(flat<int>(entry["q"]), bits);
    const std::vector<std::uint32_t> packed = words(entry["packed_int32"]);
    EXPECT_EQ(pack_rows(bits, codes.data(), rows, cols), packed) << key;
    EXPECT_EQ(unpack_rows(bits, packed.data(), rows, cols), codes) << key;
  }
  EXPECT_EQ(seen, 8);
  const Json& zp = all["ct_pack_zp_int4"];
  const std::vector<std::uint8_t> zeros = codes_of(flat<int>(zp["zp_[out,groups]"]), 4);
  const std::vector<std::uint32_t> packed = words(zp["packed_int32_[ceil(out*4/32),groups]"]);
  EXPECT_EQ(pack_columns(4, zeros.data(), 16, 2), packed);
  EXPECT_EQ(unpack_columns(4, packed.data(), 16, 2), zeros);
  const Json& fp4 = all["fp4_pack"];
  std::vector<std::uint8_t> codes;
  for (const float v : flat<float>(fp4["values"])) codes.push_back(encode_e2m1(v));
  std::vector<std::uint8_t> bytes(8);
  pack_codes(4, codes.data(), bytes.data(), 16);
  EXPECT_EQ(bytes, flat<std::uint8_t>(fp4["packed_u8"]));
}

// Every width, rows that end anywhere in a word, and pieces longer than the packer's own: bit `i` of code c
// of a row is bit (c bits + i) of its stream.
TEST(Codecs, StreamsOfAnyLength) {
  std::uint32_t state = 1;
  for (int bits = 2; bits <= 8; ++bits)
    for (const std::int64_t cols : {1, 2, 3, 7, 8, 9, 16, 23, 24, 31, 33, 64, 100, 4095, 4097, 9000}) {
      SCOPED_TRACE(std::to_string(bits) + " bits, " + std::to_string(cols));
      const std::int64_t rows = 3, words = stream_words(cols, bits);
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
      for (std::uint8_t& code : codes)
        code = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
      const auto mask = static_cast<std::uint8_t>((1 << bits) - 1),
                 middle = static_cast<std::uint8_t>(1 << (bits - 1));
      std::vector<std::uint32_t> down(static_cast<std::size_t>(stream_words(rows, bits) * cols)),
          wanted(static_cast<std::size_t>(rows * words)), flipped = wanted;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c)
          for (int i = 0; i < bits; ++i) {
            const unsigned code = codes[static_cast<std::size_t>(r * cols + c)];
            const std::int64_t along = c * bits + i, below = r * bits + i;
            wanted[static_cast<std::size_t>(r * words + along / 32)] |= (code >> i & 1) << (along % 32);
            flipped[static_cast<std::size_t>(r * words + along / 32)] |= ((code ^ middle) >> i & 1)
                                                                         << (along % 32);
            down[static_cast<std::size_t>(below / 32 * cols + c)] |= (code >> i & 1) << (below % 32);
          }
      EXPECT_EQ(pack_rows(bits, codes.data(), rows, cols), wanted);
      EXPECT_EQ(pack_columns(bits, codes.data(), rows, cols), down);
      std::vector<std::uint32_t> got(wanted.size(), 0xDEADBEEF);
      pack_rows(bits, codes.data(), rows, cols, got.data(), middle);
      EXPECT_EQ(got, flipped);
      for (std::uint8_t& code : codes) code &= mask;
      EXPECT_EQ(unpack_rows(bits, wanted.data(), rows, cols), codes);
      EXPECT_EQ(unpack_columns(bits, down.data(), rows, cols), codes);
      std::vector<std::uint8_t> less(codes.size());
      unpack_rows(bits, wanted.data(), rows, cols, less.data(), middle);
      for (std::size_t i = 0; i < less.size(); ++i)
        ASSERT_EQ(less[i], static_cast<std::uint8_t>(codes[i] - middle));
    }
}

TEST(Codecs, TransposedBytes) {
  for (const std::int64_t rows : {1, 15, 16, 17, 64, 80, 130})
    for (const std::int64_t cols : {1, 16, 31, 48, 100}) {
      std::vector<std::uint8_t> from(static_cast<std::size_t>(rows * cols)), to(from.size(), 0xEE);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
      transpose_bytes(from.data(), rows, cols, to.data());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c)
          ASSERT_EQ(to[static_cast<std::size_t>(c * rows + r)], from[static_cast<std::size_t>(r * cols + c)])
              << rows << "x" << cols << " at " << r << "," << c;
    }
}

TEST(Codecs, AwqAndGptq) {
  const Json all = golden("awq_gptq_golden.json");
  const Json& awq = all["awq_gemm"];
  const auto codes = flat<std::uint8_t>(awq["codes_[in,out]"]),
             zeros = flat<std::uint8_t>(awq["zeros_[in/g,out]"]);
  const auto weight = words(awq["qweight_int32_[in,out/8]"]),
             points = words(awq["qzeros_int32_[in/g,out/8]"]);
  EXPECT_EQ(pack_awq(codes.data(), 8, 32), weight);
  EXPECT_EQ(pack_awq(zeros.data(), 2, 32), points);
  EXPECT_EQ(unpack_awq(weight.data(), 8, 32), codes);
  EXPECT_EQ(unpack_awq(points.data(), 2, 32), zeros);
  EXPECT_EQ(weight[0], 0x3f6e55eeu);
  const Json& gptq = all["gptq"];
  const auto stream = flat<std::uint8_t>(gptq["codes_[in,out]"]),
             z = flat<std::uint8_t>(gptq["zeros_[in/g,out]"]);
  const auto packed = words(gptq["qweight_int32_[in/8,out]"]);
  EXPECT_EQ(pack_columns(4, stream.data(), 8, 32), packed);
  EXPECT_EQ(unpack_columns(4, packed.data(), 8, 32), stream);
  for (const GptqVersion version : {GptqVersion::kV1, GptqVersion::kV2}) {
    const auto want = words(gptq[version == GptqVersion::kV1 ? "qzeros_v1_int32" : "qzeros_v2_int32"]);
    EXPECT_EQ(pack_gptq_zeros(4, version, z.data(), 2, 32), want);
    EXPECT_EQ(unpack_gptq_zeros(4, version, want.data(), 2, 32), z);
  }
  const std::vector<std::uint8_t> middle(8, 8);
  EXPECT_EQ(pack_gptq_zeros(4, GptqVersion::kV1, middle.data(), 1, 8)[0], 0x77777777u);
  EXPECT_EQ(pack_gptq_zeros(4, GptqVersion::kV2, middle.data(), 1, 8)[0], 0x88888888u);
  // Stored 15 would read back as 16.
  const std::vector<std::uint8_t> none(8, 0);
  EXPECT_THROW(pack_gptq_zeros(4, GptqVersion::kV1, none.data(), 1, 8), Error);
}

TEST(Codecs, ModelOptimizerPairsOutputRows) {
  const std::vector<std::uint8_t> codes = {1, 2, 3, 0xF, 0xE, 0xD};  // [2, 3]
  const std::vector<std::uint8_t> packed = pack_modelopt_int4(codes.data(), 2, 3);
  EXPECT_EQ(packed, (std::vector<std::uint8_t>{0xF1, 0xE2, 0xD3}));
  EXPECT_EQ(unpack_modelopt_int4(packed.data(), 2, 3), codes);
}

TEST(Codecs, CompressedTensorsQuantizers) {
  const Json all = golden("e2e_golden.json");
  std::vector<float> w;
  for (const std::uint16_t bits : flat<std::uint16_t>(all["W_bf16_bits"])) w.push_back(decode_bf16(bits));
  ASSERT_EQ(w.size(), 128u);
  for (const bool zeros : {false, true}) {
    const Json& want = all[zeros ? "w4a16_g32_asym" : "w4a16_g32_sym"];
    const CtQuantized got = ct_quantize(zeros ? CtFormat::kInt4Zeros : CtFormat::kInt4, w.data(), 2, 64, 32);
    EXPECT_EQ(got.scales, flat<std::uint16_t>(want["scale_bf16_bits"]));
    std::vector<int> q;
    for (const std::uint8_t code : got.codes) q.push_back(code > 7 ? code - 16 : code);
    EXPECT_EQ(q, flat<int>(want["q"])) << zeros;
    if (zeros) {
      EXPECT_EQ(got.zero_points, flat<std::int32_t>(want["zp"]));
    }
  }
  const CtQuantized fp8 = ct_quantize(CtFormat::kFp8, w.data(), 2, 64, 0);
  EXPECT_EQ(fp8.scales, flat<std::uint16_t>(all["fp8_channel"]["scale_bf16_bits"]));
  EXPECT_EQ(fp8.codes, flat<std::uint8_t>(all["fp8_channel"]["codes_u8"]));
  const auto packed = [](const std::vector<std::uint8_t>& codes) {
    std::vector<std::uint8_t> bytes(codes.size() / 2);
    pack_codes(4, codes.data(), bytes.data(), static_cast<std::int64_t>(codes.size()));
    return bytes;
  };
  const Json& nv = all["nvfp4"];
  const CtQuantized nvfp4 = ct_quantize(CtFormat::kNvfp4, w.data(), 2, 64, 16);
  EXPECT_EQ(nvfp4.global, nv["weight_global_scale_f32"].get<float>());
  EXPECT_EQ(nvfp4.scales, flat<std::uint16_t>(nv["weight_scale_e4m3_bytes"]));
  EXPECT_EQ(nvfp4.codes, flat<std::uint8_t>(nv["codes"]));
  EXPECT_EQ(packed(nvfp4.codes), flat<std::uint8_t>(nv["weight_packed_u8"]));
  const Json& mx = all["mxfp4"];
  const CtQuantized mxfp4 = ct_quantize(CtFormat::kMxfp4, w.data(), 2, 64, 32);
  EXPECT_EQ(mxfp4.scales, flat<std::uint16_t>(mx["weight_scale_e8m0"]));
  EXPECT_EQ(packed(mxfp4.codes), flat<std::uint8_t>(mx["weight_packed_u8"]));
}

TEST(Codecs, ZerosGetTheSmallestStep) {
  const std::vector<float> w(32, 0.0f);
  EXPECT_EQ(ct_quantize(CtFormat::kInt4, w.data(), 1, 32, 32).scales[0], encode_bf16(0x1p-7f));
  EXPECT_EQ(ct_quantize(CtFormat::kMxfp4, w.data(), 1, 32, 32).scales[0], 127);
  const CtQuantized nvfp4 = ct_quantize(CtFormat::kNvfp4, w.data(), 1, 32, 16);
  EXPECT_EQ(nvfp4.global, 1.0f);
  for (const std::uint8_t code : nvfp4.codes) EXPECT_EQ(code & 7, 0);
}

}  // namespace
}  // namespace pare::quant
