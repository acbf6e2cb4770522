// Operators on strings. Values by hand, from the specification's words, or from Python's str where it says
// so.
#include "engine/ops/features/strings.h"

#include <algorithm>

#include "engine/base/unicode.h"
#include "engine/ops/features/regex.h"
#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

using Words = std::vector<std::string>;

Tensor words(const Words& w, Dims dims = {}) {
  if (dims.empty()) dims = {static_cast<std::int64_t>(w.size())};
  Tensor t = Tensor::allocate(DType::kString, dims);
  std::copy(w.begin(), w.end(), t.mut<std::string>());
  return t;
}

struct Given {
  std::vector<Tensor> out;
  Words text(std::size_t i = 0) const {
    return Words(out[i].as<std::string>(), out[i].as<std::string>() + out[i].size());
  }
};

// Through a session-like call: open outputs are allocated here.
class Outputs : public OutputAllocator {
 public:
  Outputs(const std::vector<OutputType>& types, std::vector<Tensor>& out) : types_(types), out_(out) {}
  void* allocate(int i, const Dims& dims) override {
    const auto at = static_cast<std::size_t>(i);
    out_[at] = Tensor::allocate(types_[at].dtype, dims);
    return out_[at].mut<std::byte>();
  }

 private:
  const std::vector<OutputType>& types_;
  std::vector<Tensor>& out_;
};

Given run_op(const std::string& op, const std::vector<Tensor>& in, const Attributes& attrs = {},
             int outputs = 1) {
  Graph graph;
  Node node;
  node.op = op;
  node.attrs = attrs;
  std::vector<TensorView> views, early;
  for (const Tensor& t : in) {
    Value value;
    value.name = "x";
    node.in.push_back(graph.add_value(value));
    views.push_back(t.view());
    early.push_back(t.view());
    if (t.dtype() == DType::kString) early.back().data = nullptr;
  }
  for (int i = 0; i < outputs; ++i) node.out.push_back(static_cast<ValueId>(100 + i));
  bool read = false;
  const std::vector<OutputType> types = infer_node(graph, node, views, &read);
  Given given;
  std::vector<TensorView> out;
  for (const OutputType& type : types) {
    given.out.push_back(type.open() ? Tensor() : Tensor::allocate(type.dtype, type.dims));
    out.push_back({type.dtype, type.dims, type.open() ? nullptr : given.out.back().mut<std::byte>()});
  }
  Outputs allocator(types, given.out);
  ThreadPool pool(1);
  Scratch scratch;
  OpCall call;
  call.node = &node;
  call.pool = &pool;
  call.scratch = &scratch;
  call.in = early;
  call.out = out;
  call.allocator = &allocator;
  const Kernel& kernel = cpu_registry().pick(call, Backend::kCpu, true);
  call.in = views;
  kernel.run(call);
  return given;
}

Attributes with(const char* key, Attribute value) { return {{key, std::move(value)}}; }

TEST(Strings, ConcatBroadcasts) {
  EXPECT_EQ(run_op("StringConcat", {words({"a", "", "c"}), words({".com"})}).text(),
            (Words{"a.com", ".com", "c.com"}));
  const Given grid = run_op("StringConcat", {words({"a", "b"}, {2, 1}), words({"x", "y"})});
  EXPECT_EQ(grid.text(), (Words{"ax", "ay", "bx", "by"}));
  EXPECT_EQ(grid.out[0].dims(), (Dims{2, 2}));
  EXPECT_EQ(run_op("StringConcat", {words({}, {0}), words({"x"})}).out[0].dims(), (Dims{0}));
}

TEST(Strings, SplitAtDelimiters) {
  const Given y = run_op("StringSplit", {words({"a,b,,c", "", ","})}, with("delimiter", std::string(",")), 2);
  EXPECT_EQ(y.out[0].dims(), (Dims{3, 4}));
  EXPECT_EQ(y.text(), (Words{"a", "b", "", "c", "", "", "", "", "", "", "", ""}));
  EXPECT_EQ(y.out[1].to_ints(), (std::vector<std::int64_t>{4, 1, 2}));
  Attributes once = with("delimiter", std::string("--"));
  once["maxsplit"] = std::int64_t{1};
  EXPECT_EQ(run_op("StringSplit", {words({"a--b--c"})}, once, 2).text(), (Words{"a", "b--c"}));
}

TEST(Strings, SplitAtWhiteSpaceIsPythons) {
  const Given y = run_op("StringSplit", {words({"  a \t b\n", " ", "x\u00a0y"})}, {}, 2);
  EXPECT_EQ(y.text(), (Words{"a", "b", "", "", "x", "y"}));
  EXPECT_EQ(y.out[1].to_ints(), (std::vector<std::int64_t>{2, 0, 2}));
  EXPECT_EQ(run_op("StringSplit", {words({" a b  c "})}, with("maxsplit", std::int64_t{1}), 2).text(),
            (Words{"a", "b  c "}));
  EXPECT_EQ(run_op("StringSplit", {words({" a b "})}, with("maxsplit", std::int64_t{0}), 2).text(),
            (Words{"a b "}));
  const Given none = run_op("StringSplit", {words({}, {0})}, {}, 2);
  EXPECT_EQ(none.out[0].dims(), (Dims{0, 0}));
}

TEST(Strings, NormalizerDropsWordsThenChangesCase) {
  Attributes attrs = with("stopwords", Words{"Monday"});
  attrs["case_change_action"] = std::string("UPPER");
  EXPECT_EQ(run_op("StringNormalizer", {words({"monday", "Stra\u00dfe", "\u00e9t\u00e9"})}, attrs).text(),
            (Words{"STRA\u00dfE", "\u00c9T\u00c9"}));
  attrs["is_case_sensitive"] = std::int64_t{1};
  EXPECT_EQ(run_op("StringNormalizer", {words({"monday", "Monday"})}, attrs).text(), (Words{"MONDAY"}));
  EXPECT_EQ(run_op("StringNormalizer", {words({"Monday"})}, attrs).text(), (Words{""}));
  EXPECT_EQ(run_op("StringNormalizer", {words({"Monday", "a"}, {1, 2})}, attrs).out[0].dims(), (Dims{1, 1}));
  const std::string no_utf8 =
      "A\xff"
      "B";
  EXPECT_EQ(
      run_op("StringNormalizer", {words({no_utf8})}, with("case_change_action", std::string("LOWER"))).text(),
      (Words{"a\xff"
             "b"}));
}

TEST(Strings, UnicodeMappings) {
  const struct {
    char32_t upper, lower;
  } kPairs[] = {{'A', 'a'},     {0xC9, 0xE9},       {0x100, 0x101}, {0x391, 0x3B1}, {0x416, 0x436},
                {0x531, 0x561}, {0x10400, 0x10428}, {0x1E9E, 0xDF}, {0x178, 0xFF}};
  for (const auto& pair : kPairs) {
    EXPECT_EQ(lower_case(pair.upper), pair.lower);
    if (pair.upper != 0x1E9E) {
      EXPECT_EQ(upper_case(pair.lower), pair.upper);
    }
  }
  for (const char32_t c : {U'0', U'[', U'\u4e00', U'\U0001F600', char32_t{0x10FFFF}}) {
    EXPECT_EQ(lower_case(c), c);
    EXPECT_EQ(upper_case(c), c);
  }
  for (const char32_t c : {char32_t{0}, char32_t{0x7F}, char32_t{0x80}, char32_t{0x7FF}, char32_t{0x800},
                           char32_t{0xFFFF}, char32_t{0x10000}, char32_t{0x10FFFF}}) {
    std::string text;
    append_utf8(text, c);
    std::string_view rest = text;
    EXPECT_EQ(take_character(rest), c);
    EXPECT_TRUE(rest.empty());
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\xff"}) {
    std::string_view rest = bad;
    EXPECT_EQ(take_character(rest), kReplacement);
    EXPECT_EQ(rest.size(), std::string(bad).size() - 1);
  }
}

TEST(Strings, MovementKernelsTakeStrings) {
  const Tensor x = words({"a", "b", "c", "d", "e", "f"}, {2, 3});
  EXPECT_EQ(run_op("Transpose", {x}).text(), (Words{"a", "d", "b", "e", "c", "f"}));
  EXPECT_EQ(run_op("Slice", {x, ints({0}), ints({3}), ints({1}), ints({2})}).text(),
            (Words{"a", "c", "d", "f"}));
  EXPECT_EQ(run_op("Gather", {x, ints({1})}).text(), (Words{"d", "e", "f"}));
  EXPECT_EQ(run_op("GatherElements", {x, ints({0}).reshaped({1, 1})}).text(), (Words{"a"}));
  EXPECT_EQ(run_op("Concat", {x, words({"x", "y", "z"}, {1, 3})}, with("axis", std::int64_t{0})).text(),
            (Words{"a", "b", "c", "d", "e", "f", "x", "y", "z"}));
  EXPECT_EQ(run_op("Tile", {words({"a", ""}), ints({2})}).text(), (Words{"a", "", "a", ""}));
  EXPECT_EQ(run_op("Expand", {words({"a"}), ints({2, 1})}).text(), (Words{"a", "a"}));
  EXPECT_EQ(run_op("Pad", {words({"a"}), ints({1, 1})}).text(), (Words{"", "a", ""}));
  EXPECT_EQ(run_op("Pad", {words({"a"}), ints({1, 0}), words({"p"})}).text(), (Words{"p", "a"}));
  const Tensor mask = to_type(of({2}, {1, 0}), DType::kBool);
  EXPECT_EQ(run_op("Where", {mask, words({"a", "b"}), words({"c", "d"})}).text(), (Words{"a", "d"}));
  EXPECT_EQ(run_op("ScatterElements", {words({"a", "b"}), ints({1}), words({"z"})}).text(),
            (Words{"a", "z"}));
  const Given same = run_op("Equal", {words({"a", "", "\u00e9"}), words({"a", "x", "\u00e9"})});
  EXPECT_EQ(same.out[0].to_ints(), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(Strings, CastsBothWays) {
  const auto to_string = [](const Tensor& t) {
    return run_op("Cast", {t}, with("to", std::int64_t{8})).text();
  };
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(to_string(of({6}, {314.15926F, 0.1F, -0.0F, inf, -inf, nan})),
            (Words{"314.15927", "0.1", "-0", "INF", "-INF", "NaN"}));
  EXPECT_EQ(to_string(counting(DType::kU8, {2}, 254)), (Words{"254", "255"}));
  EXPECT_EQ(to_string(Tensor::from(DType::kU64, {1}, std::vector<std::uint64_t>{UINT64_MAX})),
            (Words{"18446744073709551615"}));
  EXPECT_EQ(to_string(to_type(of({2}, {0, 1}), DType::kBool)), (Words{"0", "1"}));
  EXPECT_EQ(to_string(to_type(of({1}, {0.5F}), DType::kF16)), (Words{"0.5"}));
  const auto from = [](const Words& w, DType type) {
    return run_op("Cast", {words(w)}, with("to", static_cast<std::int64_t>(type))).out[0];
  };
  expect_close(from({"314.15926", "1e-5", "-INF", "NaN", "+inf", "0x10"}, DType::kF32),
               of({6}, {314.15926F, 1e-5F, -inf, nan, inf, 16}), 0, 0, "strings to float32");
  EXPECT_EQ(from({"-9223372036854775808", "12", "1e3", "-2.9"}, DType::kI64).to_ints(),
            (std::vector<std::int64_t>{INT64_MIN, 12, 1000, -2}));
  EXPECT_EQ(*from({"18446744073709551615"}, DType::kU64).as<std::uint64_t>(), UINT64_MAX);
  for (const char* bad : {"", " 1", "1 ", "one", "1,5", "--1"})
    EXPECT_THROW(from({bad}, DType::kF32), Error) << bad;
}

TEST(Strings, TfIdfCountsGramsOverGaps) {
  Attributes attrs{{"mode", std::string("TF")},
                   {"min_gram_length", std::int64_t{1}},
                   {"max_gram_length", std::int64_t{2}},
                   {"max_skip_count", std::int64_t{1}},
                   {"ngram_counts", std::vector<std::int64_t>{0, 2}},
                   {"ngram_indexes", std::vector<std::int64_t>{0, 3, 1, 2}},
                   {"pool_strings", Words{"a", "b", "a", "b", "b", "b"}}};
  // Tokens a b b: a once, b twice; (a,b) at gaps 1 and 2; (b,b) at gap 1. Column 0: a, 1: (a,b), 2: (b,b), 3:
  // b.
  EXPECT_TRUE(
      equal_bytes(run_op("TfIdfVectorizer", {words({"a", "b", "b"})}, attrs).out[0], of({4}, {1, 2, 1, 2})));
  attrs["mode"] = std::string("IDF");
  attrs["weights"] = std::vector<float>{10, 20, 30, 40};
  EXPECT_TRUE(equal_bytes(run_op("TfIdfVectorizer", {words({"a", "b", "b", "?"}, {1, 4})}, attrs).out[0],
                          of({1, 4}, {10, 30, 40, 20})));
  attrs["mode"] = std::string("TFIDF");
  EXPECT_TRUE(equal_bytes(run_op("TfIdfVectorizer", {words({"a", "b", "b"})}, attrs).out[0],
                          of({4}, {10, 60, 40, 40})));
  EXPECT_TRUE(equal_bytes(run_op("TfIdfVectorizer", {words({}, {0})}, attrs).out[0], of({4}, {0, 0, 0, 0})));
  attrs["ngram_counts"] = std::vector<std::int64_t>{0, 3};  // three tokens do not make pairs
  EXPECT_THROW(run_op("TfIdfVectorizer", {words({"a"})}, attrs), Error);
}

struct Match {
  const char *pattern, *text;
  bool whole;
};

TEST(Regex, MatchesWholeTexts) {
  const Match kMatches[] = {
      {"", "", true},
      {"", "a", false},
      {"abc", "abc", true},
      {"abc", "abcd", false},
      {"a|ab", "ab", true},
      {"a*", "aaaa", true},
      {"a+", "", false},
      {"a?b", "b", true},
      {"(ab)*c", "ababc", true},
      {"a{2,3}", "aaaa", false},
      {"a{2,3}", "aaa", true},
      {"a{2}", "a", false},
      {"a{2,}", "aaaaaa", true},
      {"a{,2}", "a{,2}", true},
      {"a{0}", "", true},
      {"a*?b+?", "aabb", true},
      {".", "\n", false},
      {"(?s).", "\n", true},
      {".", "\u4e00", true},
      {"..", "\u4e00", false},
      {"[a-c]+", "abcabc", true},
      {"[^a-c]+", "xyz", true},
      {"[^a-c]", "b", false},
      {"[]a]+", "a]", true},
      {"[a-]+", "a-", true},
      {"[\\d_]+", "1_2", true},
      {"[[:alpha:]]+", "abC", true},
      {"[[:^alpha:]]+", "12", true},
      {"\\w+@\\w+\\.com", "a_1@b.com", true},
      {"\\W", "\u00e9", true},
      {"\\s\\S", " x", true},
      {"^abc$", "abc", true},
      {"a^b", "ab", false},
      {"(?m)a$\n^b", "a\nb", true},
      {"a$\nb", "a\nb", false},
      {"\\Aa\\z", "a", true},
      {"a\\bb", "ab", false},
      {"a\\b b", "a b", true},
      {"a\\Bb", "ab", true},
      {"(?i)stra\u00dfe", "STRA\u1e9eE", true},
      {"(?i)k", "\u212a", true},
      {"(?i)[a-z]+", "ABC", true},
      {"(?i:A)b", "ab", true},
      {"(?i:A)b", "aB", false},
      {"(?i)a(?-i)b", "AB", false},
      {"(?i)[^k]", "K", false},
      {"(?P<n>a)(?:b)", "ab", true},
      {"\\Qa.b\\E.", "a.bc", true},
      {"\\x41\\x{1F600}", "A\U0001F600", true},
      {"\\101", "A", true},
      {"\\.\\*", ".*", true},
      {"(a|b)*abb", "ababababb", true},
      {"(|a)+", "aaa", true},
      {"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
      {"((a?){30}){30}", "aaaa", true},
      {"x|", "", true},
      {"\xff", "\xfe", true /* both are U+FFFD */},
  };
  for (const Match& m : kMatches)
    EXPECT_EQ(Regex(m.pattern).matches(m.text), m.whole) << m.pattern << " on " << m.text;
}

TEST(Regex, RefusesWhatIsNoPattern) {
  for (const char* pattern :
       {"(",          ")",           "a)",    "[",       "[a",
        "[b-a]",      "*",           "a**",   "a{1001}", "a{3,2}",
        "\\",         "\\1",         "(?=a)", "(?<=a)",  "(?<!a)",
        "[[:nope:]]", "\\x{110000}", "\\xg",  "(?P<n",   "((((a{1000}){1000}){1000}){1000})",
        "\\y"}) {
    try {
      const Regex regex(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << pattern;
    }
  }
  try {
    const Regex regex("\\p{Greek}");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
  EXPECT_THROW(Regex(std::string(1000, '(') + std::string(1000, ')')), Error);
}

}  // namespace
}  // namespace pare::testing
