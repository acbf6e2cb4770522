// TensorRT calibration caches: what is read, what is refused with its line, the same bits back.
#include "calib/trt_cache.h"

#include <gtest/gtest.h>

#include <bit>

#include "calib/collector.h"
#include "datasets/random.h"
#include "tests/unit/calib/values.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

TEST(TrtCache, ReadsNamesWithColons) {
  const TrtCache cache = parse_trt_cache(
      "TRT-8601-EntropyCalibration2\ninput: 3c010a14\n\na: b: 3C010A14\r\n(Unnamed Layer* 3) "
      "[Softmax]_output: "
      "00000000");
  EXPECT_EQ(cache.header, "TRT-8601-EntropyCalibration2");
  ASSERT_EQ(cache.entries.size(), 3u);
  EXPECT_EQ(cache.entries[0].tensor, "input");
  EXPECT_FLOAT_EQ(cache.entries[0].scale, 0.00787594f);
  EXPECT_EQ(cache.entries[1].tensor, "a: b");  // cases.md Q15: the last ": " splits
  EXPECT_EQ(cache.entries[1].scale, cache.entries[0].scale);
  EXPECT_EQ(cache.entries[2].scale, 0);
  EXPECT_EQ(cache.find("a: b"), &cache.entries[1]);
  EXPECT_EQ(cache.find("a"), nullptr);
}

TEST(TrtCache, WhatIsWrongIsNamedWithItsLine) {
  struct Wrong {
    const char* text;
    const char* says;
  };
  const std::string head = "TRT-8601-EntropyCalibration2\n";
  for (const Wrong& w :
       {Wrong{"x: 3c010a14\nx: 3c010a14\nx: 3c010a14\n", "line 3 of the calibration cache: 'x' has"},
        Wrong{"a: 3c010a14\nx: 7fc00000\n", "line 3 of the calibration cache: the scale of 'x' is NaN"},
        Wrong{"x: ffc00000\n", "line 2 of the calibration cache: the scale of 'x' is NaN"},
        Wrong{"x: 7f800000\n", "the scale of 'x' is infinite"},
        Wrong{"x: bc010a14\n", "the scale of 'x' is negative (-0.00787"},
        Wrong{"x: 80000000\n", "is negative"}, Wrong{"x: 3c010a1\n", "not eight hexadecimal digits"},
        Wrong{"x: 3c010a1g\n", "not eight hexadecimal digits"},
        Wrong{"x: 3c010a145\n", "not eight hexadecimal digits"}, Wrong{"x 3c010a14\n", "it has no ': '"},
        Wrong{": 3c010a14\n", "it has no name"}, Wrong{"a\rb: 3c010a14\n", "carriage return"}})
    EXPECT_ERROR(parse_trt_cache(head + w.text), "bad_file", w.says);
  EXPECT_ERROR(parse_trt_cache(""), "bad_file", "line 1", "empty");
  EXPECT_ERROR(parse_trt_cache("x: 3c010a14\n"), "bad_file", "line 1", "'TRT-'");
  const TemporaryFolder folder;
  EXPECT_ERROR(load_trt_cache(folder.write("bad.cache", head + "x: 7fc00000\n")), "bad_file", "bad.cache",
               "line 2");
  EXPECT_FALSE(is_trt_cache(folder.file("nothing")));
  EXPECT_FALSE(is_trt_cache(folder.write("h5", "\x89HDF")));
  EXPECT_TRUE(is_trt_cache(folder.write("c", head)));
}

TEST(TrtCache, RoundTripKeepsEveryBit) {
  SplitMix random(5);
  TrtCache cache;
  cache.header = "TRT-100300-MinMaxCalibration";
  for (int i = 0; i < 2000; ++i) {
    const auto code = static_cast<std::uint32_t>(random.next()) & 0x7FFFFFFFu;
    if (code >= 0x7F800000u) continue;
    cache.entries.push_back({"t: " + std::to_string(i), std::bit_cast<float>(code)});
  }
  const std::string written = trt_cache_text(cache);
  EXPECT_EQ(parse_trt_cache(written), cache);
  EXPECT_EQ(trt_cache_text(parse_trt_cache(written)), written);
  const TemporaryFolder folder;
  save_trt_cache(cache, folder.file("a.cache"));
  EXPECT_EQ(load_trt_cache(folder.file("a.cache")), cache);
  cache.entries[0].tensor = "two\nlines";
  EXPECT_ERROR(trt_cache_text(cache), "usage", "cannot hold the name");
  cache.header = "EntropyCalibration2";
  EXPECT_ERROR(trt_cache_text(cache), "usage", "no header");
}

TensorStats stats_of(const char* name, const std::vector<float>& values) {
  return count_plainly(values, name);
}

TEST(TrtCache, FromStatistics) {
  Statistics s;
  s.tensors = {stats_of("all_negative", {-3, -1}), stats_of("broken", {std::nanf("")}), stats_of("never", {}),
               stats_of("zeros", {0, 0}), stats_of("~both", {-1, 2})};
  std::vector<std::string> left_out;
  const TrtCache cache = trt_cache_from(s, "minmax", &left_out);
  EXPECT_EQ(left_out, (std::vector<std::string>{"broken", "never"}));
  // cases.md Q14: the magnitude counts, not the higher end; 3/127 = 3cc18306.
  EXPECT_EQ(trt_cache_text(cache),
            "TRT-8601-EntropyCalibration2\nall_negative: 3cc18306\nzeros: 00000000\n~both: 3c810204\n");
  EXPECT_ERROR(trt_cache_from(s, "entropi"), "did you mean 'entropy'?");
}

}  // namespace
}  // namespace pare
