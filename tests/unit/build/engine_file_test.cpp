// An engine file comes back as it was written; a damaged one is kBadFile, whatever byte is hit.
#include "engine/build/engine_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/build/backend.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/build/refit.h"
#include "tests/unit/build/networks.h"

namespace pare {
namespace {

class EngineFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = make_temporary_directory();
    plan_ = make_plan(test::vit(1));
    plan_memory(plan_);
    plan_.binaries["abc"] = Tensor::from<std::uint8_t>(DType::kU8, {3}, {1, 2, 3});
    plan_.layers[0].tactic = "pointwise:8";
    plan_.layers[0].microseconds = 1.25;
    provenance_.pare_version = "1";
    provenance_.batch = 2;
    provenance_.recipe = "0a1b";
    provenance_.data = "2c3d";
    provenance_.versions = {{"cudnn", "91900"}};
  }
  void TearDown() override { remove_tree(folder_); }
  std::string path(const char* name) const { return join_path(folder_, name); }
  std::string bytes_of(const std::string& file) const {
    const MappedFile mapped(file);
    return {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
  }
  ErrorCode code_of(const std::string& bytes) const {
    write_file_atomically(path("bad"), bytes);
    try {
      read_engine(path("bad"));
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  }
  std::string folder_;
  EnginePlan plan_;
  EngineProvenance provenance_;
};

TEST_F(EngineFileTest, RoundTrip) {
  write_engine(path("a"), plan_, provenance_);
  const EngineFile read = read_engine(path("a"));
  EXPECT_EQ(to_text(read.plan), to_text(plan_));
  EXPECT_EQ(read.plan.arena_bytes, plan_.arena_bytes);
  EXPECT_EQ(read.provenance.batch, 2);
  EXPECT_EQ(read.provenance.versions, provenance_.versions);
  EXPECT_EQ(read.provenance.recipe, "0a1b");
  EXPECT_EQ(read.provenance.data, "2c3d");
  EXPECT_TRUE(equal_bytes(read.plan.binaries.at("abc"), plan_.binaries.at("abc")));
  for (std::size_t i = 0; i < plan_.tensors.size(); ++i)
    if (plan_.tensors[i].role == PlanRole::kWeight) {
      EXPECT_TRUE(equal_bytes(read.plan.tensors[i].data, plan_.tensors[i].data)) << plan_.tensors[i].name;
    }
  write_engine(path("b"), read.plan, read.provenance);  // what was read is written as it was
  EXPECT_EQ(bytes_of(path("a")), bytes_of(path("b")));
}

// The same graph with every weight doubled: tactics and kernels are the old ones, outputs those of the new
// weights.
TEST_F(EngineFileTest, RefitTakesNewWeights) {
  Graph changed = test::vit(1);
  for (std::size_t i = 0; i < changed.value_count(); ++i) {
    Value& value = changed.value(static_cast<ValueId>(i));
    if (!value.is_constant() || value.dtype != DType::kF32 || value.constant.size() < 2) continue;
    Tensor twice = Tensor::allocate(DType::kF32, value.constant.dims());
    for (std::int64_t k = 0; k < twice.size(); ++k) twice.mut<float>()[k] = 2 * value.constant.as<float>()[k];
    value.constant = std::move(twice);
  }
  EnginePlan fresh = make_plan(changed);
  refit(fresh, plan_);
  plan_memory(fresh);
  EXPECT_EQ(fresh.layers[0].tactic, "pointwise:8");
  EXPECT_EQ(fresh.binaries.size(), 1u);
  EXPECT_EQ(fresh.weight_bytes, plan_.weight_bytes);
  const PlanTensor& input = fresh.tensors[static_cast<std::size_t>(fresh.inputs[0])];
  Tensor x = Tensor::allocate(input.dtype, input.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) x.mut<float>()[i] = static_cast<float>(i % 7) - 3;
  const EnginePlan direct = make_plan(changed);
  EXPECT_TRUE(equal_bytes(run_plan_reference(fresh, {x})[0], run_plan_reference(direct, {x})[0]));
  EXPECT_FALSE(equal_bytes(run_plan_reference(fresh, {x})[0], run_plan_reference(plan_, {x})[0]));
  EnginePlan other = make_plan(test::vit(2));
  try {
    refit(other, plan_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST_F(EngineFileTest, TimingCacheComesBack) {
  TimingCache cache;
  cache.put("layer", {{"mma:64", 1.5}, {"plain", 8}});
  cache.put_kernel("hash nvrtc 13.0", Tensor::from<std::uint8_t>(DType::kU8, {4}, {0, 1, 254, 255}));
  cache.write(path("cache"));
  TimingCache read = TimingCache::read(path("cache"));
  ASSERT_NE(read.find("layer"), nullptr);
  EXPECT_EQ((*read.find("layer"))[0].tactic, "mma:64");
  EXPECT_EQ(read.find("another"), nullptr);
  ASSERT_NE(read.kernel("hash nvrtc 13.0"), nullptr);
  EXPECT_TRUE(equal_bytes(*read.kernel("hash nvrtc 13.0"), *cache.kernel("hash nvrtc 13.0")));
  EXPECT_EQ(read.kernel("hash nvrtc 12.0"), nullptr);
  EXPECT_EQ(TimingCache::read(path("none")).size(), 0u);
  for (const char* kernels : {"{\"k\":\"0g\"}", "{\"k\":\"abc\"}", "{\"k\":\"\"}", "{\"k\":7}", "[]"}) {
    write_file_atomically(path("bad"),
                          std::string("{\"version\":1,\"layers\":{},\"kernels\":") + kernels + "}");
    try {
      TimingCache::read(path("bad"));
      ADD_FAILURE() << kernels;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << kernels;
    }
  }
}

TEST_F(EngineFileTest, EveryDamageIsSeen) {
  write_engine(path("a"), plan_, provenance_);
  const std::string good = bytes_of(path("a"));
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{40}, std::size_t{71},
                                   std::size_t{72}, good.size() / 2, good.size() - 1})
    EXPECT_EQ(code_of(good.substr(0, length)), ErrorCode::kBadFile) << length;
  EXPECT_EQ(code_of(good + '\0'), ErrorCode::kBadFile);
  // Byte 12..15 are not used: the only ones that may change.
  for (std::size_t at = 0; at < good.size(); at += at < 80 ? 1 : 997) {
    if (at >= 12 && at < 16) continue;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    EXPECT_EQ(code_of(bad), ErrorCode::kBadFile) << at;
  }
}

// The checksum is no signature: a plan that lies must be refused by itself.
TEST_F(EngineFileTest, PlansThatLie) {
  using Change = void (*)(EnginePlan&);
  const Change changes[] = {
      [](EnginePlan& p) { p.layers[0].out[0].offset = 1; },
      [](EnginePlan& p) { p.layers[0].in[0].strides[0] = std::int64_t{1} << 60; },
      [](EnginePlan& p) { p.layers[0].in[0].strides[1] = -1000; },
      [](EnginePlan& p) { p.layers[0].in[0].tensor = 100000; },
      [](EnginePlan& p) { p.layers[1].in[1].dims[2] += 8; },
      [](EnginePlan& p) { p.layers[1].out[0].tensor = p.inputs[0]; },
      [](EnginePlan& p) { p.layers[2].program.steps[0].n = 99; },
      [](EnginePlan& p) { p.layers[2].program.results[0] = -1; },
      [](EnginePlan& p) { p.layers[2].program.leaves[0].range_axis = 50; },
      [](EnginePlan& p) { p.layers[2].program.leaves[1].hi = 1000; },
      [](EnginePlan& p) { p.layers[2].in.clear(); },
      [](EnginePlan& p) { p.arena_bytes = 256; },
      [](EnginePlan& p) { p.outputs[0] = 0; },
      [](EnginePlan& p) {
        for (PlanLayer& l : p.layers)
          if (l.kind == LayerKind::kAttention) l.in[1].dims[2] = 1000;
      },
  };
  EXPECT_NO_THROW(check_plan(plan_, "good"));
  int number = 0;
  for (const Change change : changes) {
    EnginePlan bad = plan_;
    change(bad);
    try {
      check_plan(bad, "bad");
      ADD_FAILURE() << "change " << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << number;
    }
    ++number;
  }
}

}  // namespace
}  // namespace pare
