// Tactics whose results are wrong are found by the others', NaN included; kernels that do not compile leave
// their text.
#include "engine/cuda/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/cuda/compile.h"
#include "engine/cuda/driver.h"

namespace pare::cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// The names of those that are dropped.
std::string dropped(const std::vector<std::vector<float>>& values) {
  std::vector<TacticSample> samples;
  for (const auto& v : values)
    samples.push_back({std::string(1, static_cast<char>('a' + samples.size())), v});
  const std::vector<std::string> wrong = judge(samples);
  EXPECT_EQ(wrong.size(), samples.size());
  std::string names;
  for (std::size_t i = 0; i < wrong.size(); ++i)
    if (!wrong[i].empty()) names += samples[i].name;
  return names;
}

TEST(Verdict, TheResultThatMostAgreeWith) {
  EXPECT_EQ(dropped({}), "");
  EXPECT_EQ(dropped({{1, 2}}), "");
  EXPECT_EQ(dropped({{}, {}}), "");
  EXPECT_EQ(dropped({{1, 2}, {1.9f, 2}, {1.5f, 2.5f}}), "");  // less than a unit apart
  EXPECT_EQ(dropped({{9, 2}, {1, 2}, {1, 2}}), "a");          // two against one
  EXPECT_EQ(dropped({{1, 2}, {1, 2}, {1, 4}, {1, 2}}), "c");
  EXPECT_EQ(dropped({{1, 2}, {5, 2}}), "a");  // one against one: the simpler, which is the last
  EXPECT_EQ(dropped({{0.0f, 1}, {-0.0f, 1}}), "");
  EXPECT_EQ(dropped({{1, 2}, {1, 2}, {1}}), "c");  // not as many
}

TEST(Verdict, NumbersBeforeNan) {
  EXPECT_EQ(dropped({{kNan, 2}, {1, 2}, {1, 2}}), "a");
  EXPECT_EQ(dropped({{kNan, 2}, {kNan, 2}, {1, 2}}), "ab");    // however many
  EXPECT_EQ(dropped({{1, 2}, {kNan, kNan}}), "b");             // also when it is the last
  EXPECT_EQ(dropped({{kNan, 2}, {kNan, 2}}), "");              // operands that give NaN by right
  EXPECT_EQ(dropped({{kNan, 2}, {2, kNan}, {kNan, 2}}), "b");  // in other places
  EXPECT_EQ(dropped({{kInf, 2}, {kInf, 2}, {1e30f, 2}}), "c");
  EXPECT_EQ(dropped({{kInf, 2}, {-kInf, 2}, {-kInf, 2}}), "a");
}

TEST(Verdict, SaysWhoseResultsItTrusts) {
  const std::vector<std::string> wrong = judge({{"mma:64x64", {7}}, {"cublaslt:1", {1}}, {"plain", {1}}});
  EXPECT_EQ(wrong[0], "its results are not those of plain");
  EXPECT_EQ(wrong[1], "");
}

TEST(CompileFailure, KeepsTheSourceAndQuotesTheReason) {
  const std::string folder = testing::TempDir() + "pare_failed_kernels",
                    code = "// what we wrote\nunknown();\n";
  ASSERT_EQ(std::system(("mkdir -p '" + folder + "'").c_str()), 0);
  const char* old = std::getenv("TMPDIR");
  const std::string before = old == nullptr ? "" : old;
  setenv("TMPDIR", folder.c_str(), 1);
  const std::string text = compile_failure(code, "0123abcd", "line 2: unknown is unknown");
  EXPECT_EQ(text, "kernel 0123abcd does not compile (its source: " + folder +
                      "/pare-kernel-0123abcd.cu): line 2: unknown is unknown");
  const MappedFile kept(folder + "/pare-kernel-0123abcd.cu");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(kept.bytes().data()), kept.bytes().size()), code);
  setenv("TMPDIR", (folder + "/is/not/there").c_str(), 1);
  EXPECT_EQ(compile_failure(code, "0123abcd", "why"), "kernel 0123abcd does not compile: why");
  if (old == nullptr)
    unsetenv("TMPDIR");
  else
    setenv("TMPDIR", before.c_str(), 1);
}

// One kernel of several that does not compile takes no other with it.
TEST(CompileFailure, TheOthersAreCompiled) {
  try {
    nvrtc();
  } catch (const Error&) {
    GTEST_SKIP() << "NVRTC is not on this machine";
  }
  const std::string good = "extern \"C\" __global__ void kernel(float* x) { x[0] = 1; }\n",
                    bad = "extern \"C\" __global__ void kernel(float* x) { x[0] = unknown_(); }\n";
  const Compiled compiled = compile_all({bad, good}, "sm_90a", 2);
  EXPECT_EQ(compiled.binaries.size(), 1u);
  EXPECT_EQ(compiled.binaries.count(source_hash(good)), 1u);
  ASSERT_EQ(compiled.failed.count(source_hash(bad)), 1u);
  EXPECT_NE(compiled.failed.at(source_hash(bad)).find("unknown_"), std::string::npos);
}

}  // namespace
}  // namespace pare::cuda
