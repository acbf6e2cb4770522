// JSON in: what is refused, and where the error points. JSON out: numbers and texts that JSON has no form
// for.
#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>

#include "engine/base/error.h"
#include "engine/base/limits.h"

namespace pare {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, ReadsEveryKindInOrder) {
  const Json value = parse_json(
      R"( {"z": [1, -2, 3.5, true, false, null], "a": {"é": "ü\u00e4\n"}, "big": 18446744073709551615,
          "": {}, "empty": []} )",
      "text");
  EXPECT_EQ(dump(value),
            "{\"z\":[1,-2,3.5,true,false,null],\"a\":{\"é\":\"üä\\n\"},\"big\":18446744073709551615,\"\":{},"
            "\"empty\":[]}");
  EXPECT_EQ(dump(parse_json("\xEF\xBB\xBF 7", "byte order mark")), "7");
}

struct Refused {
  std::string text;
  const char* message;  // a part of it
  const char* where;
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.text.substr(0, 60); }

class JsonRefuses : public testing::TestWithParam<Refused> {};

TEST_P(JsonRefuses, WithItsPlace) {
  try {
    parse_json(GetParam().text, "a.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), GetParam().where) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, JsonRefuses,
    testing::Values(Refused{"", "nothing is in it", "a.json:1:1"},
                    Refused{" ", "unexpected end of input", "a.json:1:2"},
                    Refused{"{\"a\": 1,\n \"b\" 2}", "expected ':'", "a.json:2:6"},
                    Refused{"[1, 2", "unexpected end of input", "a.json:1:6"},
                    Refused{"[1] 2", "unexpected number literal", "a.json:1:5"},
                    Refused{"[1,]", "unexpected ']'", "a.json:1:4"},
                    Refused{"nan", "invalid literal", "a.json:1:2"},
                    Refused{"[1e999]", "number overflow", "a.json:1:6"},
                    Refused{"// no comments", "invalid literal", "a.json:1:1"},
                    Refused{"\"\xFF\"", "ill-formed UTF-8", "a.json:1:2"},
                    Refused{"\"a\nb\"", "control character", "a.json:1:3"},
                    Refused{"\"\\ud800\"", "surrogate", "a.json:1:8"},
                    Refused{std::string("[1]\0x", 5), "a zero byte", "a.json:1:4"},
                    Refused{"{\"a\": 1,\n\"a\": 2}", "key 'a' appears twice", "a.json:2:3"},
                    Refused{"{\"b\": {\"a\": {}, \"\\u0061\": 2}}", "key 'a' appears twice", "a.json:1:24"},
                    Refused{std::string(65, '['), "deeper than the 64 levels", "a.json:1:65"},
                    Refused{std::string(1'000'000, '['), "deeper than the 64 levels", "a.json:1:65"},
                    Refused{"{\"a\":" + nested(64) + "}", "deeper than the 64 levels", "a.json:1:69"}));

TEST(Json, DepthUpToTheLimit) {
  EXPECT_EQ(dump(parse_json(nested(limits::kMaxJsonDepth), "deep")), nested(limits::kMaxJsonDepth));
}

TEST(Json, SameKeyInDifferentObjects) {
  EXPECT_EQ(dump(parse_json(R"({"a":{"a":1},"b":{"a":[{"a":2},{"a":3}]}})", "text")),
            R"({"a":{"a":1},"b":{"a":[{"a":2},{"a":3}]}})");
}

TEST(Json, ManyKeysAreNotQuadratic) {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 200'000; ++i) text += ",\"" + std::to_string(i) + "\":0";  // hours, if it were
  EXPECT_EQ(parse_json(text + "}", "wide").size(), 200'001u);
}

TEST(Json, NumbersWithoutAForm) {
  EXPECT_EQ(dump(json_number(kNan)), "\"nan\"");
  EXPECT_EQ(dump(json_number(kInf)), "\"inf\"");
  EXPECT_EQ(dump(json_number(-kInf)), "\"-inf\"");
  EXPECT_EQ(dump(json_number(0.1)), "0.1");
  EXPECT_EQ(dump(json_number(-0.0)), "-0.0");
  EXPECT_EQ(dump(json_number(5e-324)), "5e-324");
  // Also when somebody forgot json_number.
  EXPECT_EQ(dump(Json{{"a", {kNan, 1.5}}, {"b", -kInf}}), R"({"a":["nan",1.5],"b":"-inf"})");
}

TEST(Json, TextThatIsNoUtf8) { EXPECT_EQ(dump(Json("a\xFFz")), "\"a\xEF\xBF\xBDz\""); }

TEST(Json, Indent) { EXPECT_EQ(dump(Json{{"a", {1}}}, 2), "{\n  \"a\": [\n    1\n  ]\n}"); }

TEST(Json, Members) {
  const Json object = parse_json(
      R"({"i":-3,"d":0.5,"n":"nan","m":"-inf","s":"x","t":true,"l":[1],"o":{},"u":9223372036854775808})",
      "report");
  EXPECT_EQ(json_int(object, "i", "report"), -3);
  EXPECT_EQ(json_double(object, "d", "report"), 0.5);
  EXPECT_EQ(json_double(object, "i", "report"), -3.0);
  EXPECT_TRUE(std::isnan(json_double(object, "n", "report")));
  EXPECT_EQ(json_double(object, "m", "report"), -kInf);
  EXPECT_EQ(json_string(object, "s", "report"), "x");
  EXPECT_TRUE(json_bool(object, "t", "report"));
  EXPECT_EQ(json_array(object, "l", "report").size(), 1u);
  EXPECT_EQ(json_object(object, "o", "report").size(), 0u);

  const auto message_of = [&](auto&& read) -> std::string {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message_of([&] { json_int(object, "q", "report"); }), "report: key 'q' is missing");
  EXPECT_EQ(message_of([&] { json_double(object, "s", "report"); }), "report: key 's' is not a number");
  EXPECT_EQ(message_of([&] { json_string(object, "i", "report"); }), "report: key 'i' is not a string");
  EXPECT_NE(message_of([&] { json_int(object, "d", "report"); }).find("whole number"), std::string::npos);
  EXPECT_NE(message_of([&] { json_int(object, "u", "report"); }).find("whole number"), std::string::npos);
  EXPECT_EQ(message_of([&] { json_bool(Json(3), "a", "report"); }), "report is not a JSON object");
}

}  // namespace
}  // namespace pare
