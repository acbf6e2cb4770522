// ai.onnx.ml: ugly inputs and broken models. (Values: tests/golden/make_microsoft.py and ONNX's own tests.)
#include "engine/ops/features/ml.h"

#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

using Ints64 = std::vector<std::int64_t>;
using Floats32 = std::vector<float>;
using Words = std::vector<std::string>;

OpCase ml_case(const std::string& op, std::vector<Tensor> in, Attributes attrs, int outputs = 1) {
  OpCase c{op, std::move(in), std::move(attrs), outputs};
  c.domain = std::string(ml::kDomain);
  return c;
}

Attributes stump() {  // one split at 0 of column 0: left -1, right 2
  return {{"nodes_treeids", Ints64{0, 0, 0}},
          {"nodes_nodeids", Ints64{0, 1, 2}},
          {"nodes_featureids", Ints64{0, 0, 0}},
          {"nodes_values", Floats32{0, 0, 0}},
          {"nodes_modes", Words{"BRANCH_LEQ", "LEAF", "LEAF"}},
          {"nodes_truenodeids", Ints64{1, 0, 0}},
          {"nodes_falsenodeids", Ints64{2, 0, 0}},
          {"target_treeids", Ints64{0, 0}},
          {"target_nodeids", Ints64{1, 2}},
          {"target_ids", Ints64{0, 0}},
          {"target_weights", Floats32{-1, 2}}};
}

TEST(Ml, TreesSplitWhereTheySay) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  Attributes attrs = stump();
  EXPECT_TRUE(equal_bytes(
      check_case(ml_case("TreeEnsembleRegressor", {of({5, 1}, {-0.0F, 1e-30F, nan, -inf, inf})}, attrs))[0],
      of({5, 1}, {-1, 2, 2, -1, 2})));
  attrs["nodes_missing_value_tracks_true"] = Ints64{1, 0, 0};
  EXPECT_TRUE(equal_bytes(check_case(ml_case("TreeEnsembleRegressor", {of({1}, {nan})}, attrs))[0],
                          of({1, 1}, {-1})));
  EXPECT_EQ(check_case(ml_case("TreeEnsembleRegressor", {of({0, 1}, {})}, attrs))[0].dims(), (Dims{0, 1}));
}

TEST(Ml, BrokenTreesAreRefused) {
  const std::pair<const char*, Attribute> kBroken[] = {{"nodes_truenodeids", Ints64{7, 0, 0}},
                                                       {"nodes_values", Floats32{0, 0}},
                                                       {"nodes_modes", Words{"BRANCH_LEQ", "LEAF", "TWIG"}},
                                                       {"nodes_nodeids", Ints64{0, 1, 1}},
                                                       {"target_ids", Ints64{0, 1}},
                                                       {"target_nodeids", Ints64{1, 9}},
                                                       {"nodes_featureids", Ints64{5, 0, 0}}};
  for (const auto& [key, value] : kBroken) {
    Attributes attrs = stump();
    attrs[key] = value;
    EXPECT_THROW(check_case(ml_case("TreeEnsembleRegressor", {of({1, 1}, {0})}, attrs)), Error) << key;
  }
  Attributes loop = stump();  // node 1 is a branch back to itself
  loop["nodes_modes"] = Words{"BRANCH_LEQ", "BRANCH_LEQ", "LEAF"};
  loop["nodes_truenodeids"] = Ints64{1, 1, 0};
  loop["nodes_falsenodeids"] = Ints64{2, 2, 0};
  EXPECT_THROW(check_case(ml_case("TreeEnsembleRegressor", {of({1, 1}, {-1})}, loop)), Error);
}

TEST(Ml, TablesFindNanAndBothZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Attributes attrs{{"keys_floats", Floats32{nan, 0}}, {"values_int64s", Ints64{5, 6}}};
  EXPECT_EQ(check_case(ml_case("LabelEncoder", {of({4}, {nan, -0.0F, 0, 1})}, attrs))[0].to_ints(),
            (Ints64{5, 6, 6, -1}));
  const Attributes wrong{{"keys_strings", Words{"a"}}, {"values_int64s", Ints64{5}}};
  EXPECT_THROW(check_case(ml_case("LabelEncoder", {of({1}, {1})}, wrong)), Error);
  const Attributes uneven{{"keys_floats", Floats32{1, 2}}, {"values_int64s", Ints64{5}}};
  EXPECT_THROW(check_case(ml_case("LabelEncoder", {of({1}, {1})}, uneven)), Error);
}

TEST(Ml, RowsOfZerosStay) {
  for (const char* norm : {"MAX", "L1", "L2"})
    EXPECT_TRUE(equal_bytes(
        check_case(ml_case("Normalizer", {of({2, 2}, {0, 0, 3, 3})}, {{"norm", std::string(norm)}}))[0],
        norm == std::string("MAX")  ? of({2, 2}, {0, 0, 1, 1})
        : norm == std::string("L1") ? of({2, 2}, {0, 0, 0.5F, 0.5F})
                                    : of({2, 2}, {0, 0, std::sqrt(0.5F), std::sqrt(0.5F)})));
}

TEST(Ml, WhatDoesNotFitIsSaid) {
  EXPECT_THROW(
      check_case(ml_case("FeatureVectorizer", {of({1, 2}, {1, 2}), of({3, 2}, {1, 2, 3, 4, 5, 6})}, {})),
      Error);
  EXPECT_THROW(check_case(ml_case("Scaler", {of({1, 3}, {1, 2, 3})}, {{"offset", Floats32{1, 2}}})), Error);
  EXPECT_THROW(check_case(ml_case("Imputer", {of({1, 3}, {1, 2, 3})}, {})), Error);
  EXPECT_THROW(check_case(ml_case("OneHotEncoder", {ints({4})},
                                  {{"cats_int64s", Ints64{1}}, {"zeros", std::int64_t{0}}})),
               Error);
  EXPECT_THROW(check_case(ml_case("ArrayFeatureExtractor", {of({1, 2}, {1, 2}), ints({2})}, {})), Error);
  EXPECT_THROW(check_case(ml_case("LinearRegressor", {of({1, 2}, {1, 2})}, {{"coefficients", Floats32{1}}})),
               Error);
}

}  // namespace
}  // namespace pare::testing
