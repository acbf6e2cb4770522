#include "engine/base/name_pattern.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace pare {
namespace {

TEST(NamePattern, FitsWholeNames) {
  struct {
    const char *text, *name;
    bool fits;
  } const cases[] = {
      {"head", "head", true},
      {"head", "lm_head", false},
      {"h.ad", "head", false},  // no pattern without re:
      {"re:h.ad", "head", true},
      {"re:head", "lm_head", false},
      {"re:head", "head_norm", false},
      {"re:.*head", "lm_head", true},
      {"re:^head$", "head", true},
      {"re:a|b", "b", true},
      {"re:a|b", "ab", false},
      {"re:", "", true},
      {"re:", "a", false},
      {"", "", true},
      {"re:.*", "a\nb", false},  // as ECMAScript has it: a dot is no line end
      {"re:[^]*", "a\nb", true},
  };
  for (const auto& c : cases) EXPECT_EQ(NamePattern(c.text).fits(c.name), c.fits) << c.text << " " << c.name;
  EXPECT_TRUE(NamePattern("re:a*").fits(std::string(1024, 'a')));
  EXPECT_FALSE(NamePattern("re:a*").fits(std::string(1025, 'a')));
  EXPECT_TRUE(NamePattern(std::string(2000, 'a')).fits(std::string(2000, 'a')));
}

TEST(NamePattern, ReplacesWhatFits) {
  EXPECT_EQ(NamePattern("re:/([0-9]+)/(.*)").replaced("/3/conv", "block$1.$2"), "block3.conv");
  EXPECT_EQ(NamePattern("re:[0-9]+").replaced("x3", "y"), "x3");
  EXPECT_EQ(NamePattern("re:x.*").replaced("x3", "<$&>"), "<x3>");
  EXPECT_EQ(NamePattern("x3").replaced("x3", "$1"), "$1");
  EXPECT_EQ(NamePattern("x3").replaced("x4", "y"), "x4");
}

TEST(NamePattern, ProposesAWiderOne) {
  EXPECT_EQ(NamePattern("re:head").wider(), "re:.*head.*");
  EXPECT_EQ(NamePattern("head").wider(), "head");
}

TEST(NamePattern, SaysWhatIsWrong) {
  try {
    NamePattern pattern("re:(a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("'(a' is no regular expression"), std::string::npos);
    EXPECT_FALSE(error.hint().empty());
  }
}

}  // namespace
}  // namespace pare
