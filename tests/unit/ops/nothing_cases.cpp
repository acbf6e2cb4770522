#include "tests/unit/ops/nothing_cases.h"

namespace pare::testing {
namespace {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Words = std::vector<std::string>;

Attribute number(std::int64_t v) { return v; }
Attribute word(const char* text) { return std::string(text); }
Tensor bytes(Dims dims, DType type = DType::kU8) { return counting(type, std::move(dims)); }
Tensor one(float v) { return of({}, {v}); }
Tensor flag(Dims dims) { return to_type(floats(std::move(dims), 3, 0, 2), DType::kBool); }
Tensor zeros(DType type, Dims dims) { return to_type(floats(std::move(dims), 1, 0, 0), type); }

}  // namespace

std::vector<OpCase> nothing_cases() {
  std::vector<OpCase> all;
  const auto add = [&](OpCase c) { all.push_back(std::move(c)); };
  const Tensor x4 = floats({2, 4, 5, 7}), x3 = floats({2, 3, 5}), x2 = floats({3, 5});

  for (const char* op : {"Abs",
                         "Acos",
                         "Acosh",
                         "Asin",
                         "Asinh",
                         "Atan",
                         "Atanh",
                         "Ceil",
                         "Celu",
                         "Cos",
                         "Cosh",
                         "Elu",
                         "Erf",
                         "Exp",
                         "Floor",
                         "Gelu",
                         "Identity",
                         "HardSigmoid",
                         "HardSwish",
                         "IsInf",
                         "IsNaN",
                         "LeakyRelu",
                         "Log",
                         "Mish",
                         "Neg",
                         "Reciprocal",
                         "Relu",
                         "Round",
                         "Selu",
                         "Shrink",
                         "Sigmoid",
                         "Sign",
                         "Sin",
                         "Sinh",
                         "Softplus",
                         "Softsign",
                         "Sqrt",
                         "Swish",
                         "Tan",
                         "Tanh",
                         "ThresholdedRelu",
                         "Shape",
                         "Size",
                         "NonZero",
                         "Dropout"})
    add({op, {x3}});
  add({"Not", {flag({2, 3})}});
  for (const char* op : {"And", "Or", "Xor"}) add({op, {flag({2, 3}), flag({3})}});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Equal", "Less", "LessOrEqual",
                         "Greater", "GreaterOrEqual"})
    add({op, {x3, floats({3, 1})}});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Mod"})
    add({op, {bytes({2, 3}, DType::kI64), bytes({3}, DType::kI64)}});
  for (const char* op : {"Max", "Min", "Sum", "Mean"}) add({op, {x3, floats({5}), floats({3, 1})}});
  for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) add({op, {bytes({2, 3}), bytes({3})}});
  add({"BitwiseNot", {bytes({2, 3})}});
  add({"BitShift", {bytes({2, 3}), bytes({3})}, {{"direction", word("LEFT")}}});
  add({"BitCast", {x3}, {{"to", static_cast<std::int64_t>(DType::kI32)}}});
  add({"Cast", {x3}, {{"to", number(7)}}});
  add({"CastLike", {x3, bytes({1})}});
  add({"Clip", {x3, one(-0.5F), one(0.5F)}});
  add({"Where", {flag({2, 1, 5}), x3, floats({3, 1})}});

  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
                         "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"}) {
    for (const Ints& axes : {Ints{1}, Ints{2}, Ints{0}, Ints{0, 2}, Ints{1, 2}})
      add({op, {x3, ints(axes)}, {{"keepdims", number(1)}}, 1, 1e-5, 1e-5, true});
    add({op, {bytes({2, 3, 5}, DType::kI32), ints({1})}});
  }
  for (const char* op : {"ArgMax", "ArgMin"}) add({op, {x3}, {{"axis", number(1)}, {"keepdims", number(0)}}});
  for (const char* op : {"CumSum", "CumProd"}) add({op, {x3, ints({1})}, {{"exclusive", number(1)}}});
  add({"TopK", {x3, ints({2})}, {{"axis", number(1)}}, 2});
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"})
    for (const std::int64_t axis : {0, 1, 2}) add({op, {x3}, {{"axis", axis}}});
  add({"LpNormalization", {x3}, {{"axis", number(1)}, {"p", number(2)}}});
  add({"LayerNormalization", {x3, floats({5}), floats({5}, 2)}, {{"axis", number(-1)}}, 3});
  add({"LayerNormalization", {x3, floats({3, 5}), floats({3, 5}, 2)}, {{"axis", number(1)}}, 3});
  add({"RMSNormalization", {x3, floats({5})}, {{"axis", number(-1)}}});
  add({"InstanceNormalization", {x4, floats({4}), floats({4}, 2)}, {}});
  add({"GroupNormalization", {x4, floats({4}), floats({4}, 2)}, {{"num_groups", number(2)}}});
  add({"BatchNormalization", {x4, floats({4}), floats({4}), floats({4}), floats({4}, 3, 0.5F, 2)}, {}});
  add({"MeanVarianceNormalization", {x4}, {{"axes", Ints{0, 2, 3}}}});
  add({"LRN", {x4}, {{"size", number(3)}}});

  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) {
    add({op, {x4}, {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{1, 2}}, {"pads", Ints{1, 1, 1, 1}}}});
    add({op, {x3}, {{"kernel_shape", Ints{1}}, {"strides", Ints{2}}, {"ceil_mode", number(1)}}});
    // A window that lies in padding with each of its places.
    add({op, {floats({2, 3, 1})}, {{"kernel_shape", Ints{2}}, {"dilations", Ints{2}}, {"pads", Ints{1, 1}}}});
  }
  for (const char* op : {"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"}) add({op, {x4}, {}});
  add({"MaxUnpool",
       {floats({1, 2, 2, 3}), counting(DType::kI64, {1, 2, 2, 3}, 0)},
       {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}});
  add({"Conv",
       {x4, floats({6, 2, 3, 1}), floats({6}, 2)},
       {{"group", number(2)}, {"pads", Ints{1, 0, 1, 0}}, {"strides", Ints{1, 2}}}});
  add({"Conv", {x3, floats({6, 3, 2})}, {{"dilations", Ints{2}}}});
  add({"ConvTranspose",
       {x4, floats({4, 3, 2, 1}), floats({6}, 2)},
       {{"group", number(2)}, {"strides", Ints{2, 1}}, {"output_padding", Ints{1, 0}}}});
  add({"ConvInteger",
       {bytes({2, 4, 5, 7}), bytes({6, 2, 3, 1}), bytes({}), bytes({})},
       {{"group", number(2)}}});
  add({"DeformConv",
       {x4, floats({6, 2, 2, 2}), floats({2, 16, 4, 6}), floats({6})},
       {{"group", number(2)}, {"offset_group", number(2)}}});
  add({"Gemm",
       {floats({3, 5}), floats({5, 4}), floats({4}, 2)},
       {{"transA", number(0)}, {"transB", number(0)}}});
  add({"MatMul", {x3, floats({5, 7})}, {}});
  add({"MatMul", {floats({2, 3, 5}), floats({2, 5, 7})}, {}});
  add({"MatMul", {floats({5}), floats({5})}, {}});
  add({"MatMulInteger", {bytes({2, 3, 5}), bytes({5, 7}), bytes({}), bytes({})}});
  add({"Einsum", {x3, floats({5, 7})}, {{"equation", word("bij,jk->bik")}}});
  add({"Det", {floats({2, 3, 3})}, {}});
  add({"Attention", {floats({2, 4, 3, 6}), floats({2, 2, 5, 6}), floats({2, 2, 5, 7})}, {}});
  add({"Attention",
       {floats({2, 3, 24}), floats({2, 5, 12}), floats({2, 5, 14})},
       {{"q_num_heads", number(4)}, {"kv_num_heads", number(2)}}});
  add({"LinearAttention",
       {floats({2, 5, 12}), floats({2, 5, 6}), floats({2, 5, 14})},
       {{"q_num_heads", number(4)}, {"kv_num_heads", number(2)}, {"update_rule", word("linear")}},
       2});
  add({"CausalConvWithState", {x3, floats({3, 1, 4}), floats({3})}, {}, 2});
  add({"RotaryEmbedding",
       {floats({2, 4, 3, 6}), floats({2, 3, 3}), floats({2, 3, 3})},
       {{"rotary_embedding_dim", number(0)}}});
  add({"RotaryEmbedding",
       {floats({2, 3, 24}), floats({9, 3}), floats({9, 3}), zeros(DType::kI64, {2, 3})},
       {{"num_heads", number(4)}, {"interleaved", number(1)}}});
  for (const auto& [op, gates] : {std::pair{"RNN", 1}, std::pair{"GRU", 3}, std::pair{"LSTM", 4}})
    add({op,
         {floats({5, 2, 3}), floats({1, gates * 7, 3}), floats({1, gates * 7, 7}),
          floats({1, 2 * gates * 7})},
         {{"hidden_size", number(7)}},
         2});

  add({"Concat", {x3, floats({2, 4, 5}), x3}, {{"axis", number(1)}}});
  add({"Split", {floats({2, 6, 5}), ints({2, 4})}, {{"axis", number(1)}}, 2});
  add({"Split", {floats({2, 6, 5})}, {{"axis", number(1)}, {"num_outputs", number(2)}}, 2});
  add({"Slice", {x3, ints({0}), ints({2}), ints({1}), ints({1})}});
  add({"Reshape", {x3, ints({2, -1})}, {{"allowzero", number(0)}}});
  add({"Flatten", {x3}, {{"axis", number(1)}}});
  add({"Squeeze", {floats({2, 1, 5}), ints({1})}});
  add({"Unsqueeze", {x3, ints({1})}});
  add({"Transpose", {x3}, {{"perm", Ints{2, 0, 1}}}});
  add({"Expand", {floats({3, 1}), ints({2, 3, 5})}});
  add({"Tile", {x2, ints({2, 3})}});
  for (const char* mode : {"constant", "edge", "reflect", "wrap"})
    add({"Pad", {x3, ints({0, 1, 2, 1, 0, 2})}, {{"mode", word(mode)}}});
  add({"Gather", {x3, ints({0, 2})}, {{"axis", number(1)}}});
  add({"GatherElements", {x3, zeros(DType::kI64, {2, 2, 5})}, {{"axis", number(1)}}});
  add({"GatherND", {x3, zeros(DType::kI64, {2, 4, 1})}, {{"batch_dims", number(1)}}});
  add({"ScatterElements",
       {x3, zeros(DType::kI64, {1, 2, 5}), floats({1, 2, 5})},
       {{"axis", number(1)}, {"reduction", word("add")}}});
  add({"ScatterND", {x3, zeros(DType::kI64, {4, 2}), floats({4, 5})}});
  add({"TensorScatter",
       {floats({2, 3, 7, 5}), floats({2, 3, 4, 5}), zeros(DType::kI64, {2})},
       {{"axis", number(-2)}}});
  add({"OneHot", {ints({0, 2}), ints({4}), of({2}, {0, 1})}, {{"axis", number(-1)}}});
  add({"Compress", {x3, flag({3})}, {{"axis", number(1)}}});
  add({"Trilu", {x3, ints({1})}, {{"upper", number(1)}}});
  add({"EyeLike", {x2}, {{"k", number(1)}}});
  add({"Range", {ints({2}), ints({9}), ints({3})}});
  add({"ConstantOfShape", {ints({2, 3})}});
  add({"ReverseSequence",
       {floats({5, 2, 3}), ints({4, 1})},
       {{"time_axis", number(0)}, {"batch_axis", number(1)}}});
  add({"DepthToSpace", {floats({2, 8, 3, 5})}, {{"blocksize", number(2)}}});
  add({"SpaceToDepth", {floats({2, 3, 4, 6})}, {{"blocksize", number(2)}}});
  add({"Unique", {of({5}, {3, 1, 3, 2, 1})}, {{"sorted", number(1)}}, 4});
  add({"CenterCropPad", {x3, ints({4, 2})}, {{"axes", Ints{1, 2}}}});
  add({"Col2Im",
       {floats({2, 12, 8}), ints({5, 3}), ints({2, 2})},
       {{"dilations", Ints{1, 1}}, {"strides", Ints{1, 1}}}});

  for (const char* mode : {"nearest", "linear", "cubic"}) {
    add({"Resize", {x4, Tensor(), of({4}, {1, 1, 2, 0.5F})}, {{"mode", word(mode)}}, 1, 1e-5, 1e-5, true});
    add({"Resize",
         {x4, Tensor(), Tensor(), ints({2, 4, 3, 9})},
         {{"mode", word(mode)}},
         1,
         1e-5,
         1e-5,
         true});
  }
  add({"GridSample", {floats({2, 3, 4, 5}), floats({2, 6, 7, 2})}, {{"align_corners", number(0)}}});
  add({"AffineGrid", {floats({2, 2, 3}), ints({2, 1, 4, 5})}, {{"align_corners", number(1)}}});
  add({"RoiAlign",
       {x4, of({3, 4}, {0, 0, 4, 4, 1, 1, 3, 4, 0, 0, 2, 2}), zeros(DType::kI64, {3})},
       {{"output_height", number(2)}, {"output_width", number(3)}, {"sampling_ratio", number(2)}}});
  add({"MaxRoiPool", {x4, of({1, 5}, {0, 0, 0, 3, 4})}, {{"pooled_shape", Ints{2, 3}}}});
  add({"NonMaxSuppression",
       {floats({1, 6, 4}, 1, 0, 1), floats({1, 2, 6}, 2, 0, 1), ints({3}), of({1}, {0.5F}), of({1}, {0})},
       {{"center_point_box", number(0)}}});
  add({"DFT", {floats({2, 6, 1}), ints({8}), ints({1})}, {{"onesided", number(1)}}});
  add({"STFT", {floats({2, 20, 1}), ints({4}), floats({8}), ints({8})}, {{"onesided", number(1)}}});
  add({"MelWeightMatrix", {ints({4}), ints({16}), ints({8000}), one(100), one(3000)}, {}});

  const auto q = [](Dims dims) { return bytes(std::move(dims), DType::kI8); };
  add({"QuantizeLinear", {x3, of({3}, {0.5F, 0.25F, 1}), zeros(DType::kI8, {3})}, {{"axis", number(1)}}});
  add({"QuantizeLinear",
       {floats({4, 6}), floats({2, 6}, 3, 0.5F, 1)},
       {{"axis", number(0)}, {"block_size", number(2)}, {"output_dtype", number(3)}}});
  add({"DequantizeLinear",
       {q({2, 3, 5}), of({3}, {0.5F, 0.25F, 1}), zeros(DType::kI8, {3})},
       {{"axis", number(1)}}});
  add({"DequantizeLinear",
       {q({4, 6}), floats({2, 6}, 3, 0.5F, 1)},
       {{"axis", number(0)}, {"block_size", number(2)}}});
  add({"DynamicQuantizeLinear", {x3}, {}, 3});
  add({"QLinearMatMul",
       {q({3, 5}), one(0.5F), zeros(DType::kI8, {}), q({5, 7}), of({7}, {1, 2, 3, 4, 5, 6, 7}),
        zeros(DType::kI8, {7}), one(3), zeros(DType::kI8, {})},
       {},
       1,
       0,
       0,
       true});
  add({"QLinearConv",
       {q({2, 4, 5, 7}), one(0.5F), zeros(DType::kI8, {}), q({6, 2, 3, 1}), of({6}, {1, 2, 3, 4, 5, 6}),
        zeros(DType::kI8, {6}), one(9), zeros(DType::kI8, {}), counting(DType::kI32, {6})},
       {{"group", number(2)}},
       1,
       0,
       0,
       true});

  for (const char* op : {"pare.ToChannelsLast", "pare.ToPlain", "pare.GlobalAveragePool"})
    add({op, {x4}, {}});
  for (const char* op : {"pare.MaxPool", "pare.AveragePool"}) {
    add({op,
         {floats({2, 5, 7, 4})},
         {{"kernel_shape", Ints{2, 3}},
          {"strides", Ints{1, 2}},
          {"pads", Ints{1, 1, 1, 1}},
          {"count_include_pad", number(0)}}});
    add({op, {floats({2, 1, 3})}, {{"kernel_shape", Ints{2}}, {"dilations", Ints{2}}, {"pads", Ints{1, 1}}}});
  }
  add({"pare.Conv",
       {floats({2, 5, 7, 4}), floats({6, 2, 3, 1}), floats({6}, 2)},
       {{"group", number(2)}, {"pads", Ints{1, 0, 1, 0}}},
       1,
       1e-5,
       1e-5,
       true});
  add({"pare.Conv",
       {floats({2, 5, 7, 6}), floats({6, 1, 3, 3})},
       {{"group", number(6)}, {"pads", Ints{1, 1, 1, 1}}},
       1,
       1e-5,
       1e-5,
       true});
  add({"pare.Conv",
       {floats({2, 5, 7, 4}), floats({6, 4, 3, 3})},
       {{"pads", Ints{1, 1, 1, 1}}},
       1,
       1e-4,
       1e-4,
       true});
  add({"pare.ConvTranspose",
       {floats({2, 5, 7, 4}), floats({4, 3, 2, 1}), floats({6}, 2)},
       {{"group", number(2)}, {"strides", Ints{2, 1}}},
       1,
       1e-5,
       1e-5,
       true});
  add({"pare.MatMul", {x3, floats({5, 7}), floats({7}, 2)}, {}, 1, 1e-5, 1e-5, true});
  add({"pare.FakeQuant",
       {x3, of({3}, {0.5F, 0.25F, 1}), zeros(DType::kI8, {3})},
       {{"axis", number(1)}, {"code_dtype", static_cast<std::int64_t>(DType::kI8)}}});
  add({"pare.QLookup", {q({2, 3}), counting(DType::kU8, {256}, 0)}, {}, 1, 0, 0, true});
  add({"pare.QAdd",
       {q({2, 3}), one(0.5F), zeros(DType::kI8, {}), q({2, 3}), one(0.25F), zeros(DType::kI8, {}), one(1),
        zeros(DType::kI8, {})},
       {},
       1,
       0,
       0,
       true});
  add({"pare.CachedAttention",
       {floats({2, 3, 24}), floats({2, 3, 12}), floats({2, 3, 12}, 2), floats({2, 2, 1, 6, 16}),
        floats({2, 2, 16, 6}), ints({5})},
       {{"q_num_heads", number(4)}, {"kv_num_heads", number(2)}, {"window", number(0)}}});
  OpCase attention{"GroupQueryAttention",
                   {floats({2, 3, 24}), floats({2, 3, 12}), floats({2, 3, 12}, 2), Tensor(), Tensor(),
                    counting(DType::kI32, {2}, 1), counting(DType::kI32, {1}, 3)},
                   {{"num_heads", number(4)}, {"kv_num_heads", number(2)}},
                   3};
  attention.domain = "com.microsoft";
  add(attention);

  const auto ml = [&](const char* op, std::vector<Tensor> in, Attributes attrs, int outputs = 1) {
    OpCase c{op, std::move(in), std::move(attrs), outputs};
    c.domain = "ai.onnx.ml";
    add(std::move(c));
  };
  const Tensor table = floats({3, 2});
  ml("ArrayFeatureExtractor", {table, ints({1, 0, 1})}, {});
  ml("Binarizer", {table}, {{"threshold", 0.5F}});
  ml("CategoryMapper", {ints({2, 7})}, {{"cats_int64s", Ints{2, 3}}, {"cats_strings", Words{"a", "b"}}});
  ml("FeatureVectorizer", {table, floats({3, 1})}, {{"inputdimensions", Ints{2, 1}}});
  ml("Imputer", {table}, {{"imputed_value_floats", Floats{1, 2}}, {"replaced_value_float", 0.0F}});
  ml("LabelEncoder", {floats({4})}, {{"keys_floats", Floats{1, 2}}, {"values_int64s", Ints{5, 6}}});
  ml("LinearClassifier", {table},
     {{"coefficients", Floats{1, 2, 3, 4, 5, 6}},
      {"intercepts", Floats{1, 2, 3}},
      {"classlabels_ints", Ints{7, 8, 9}}},
     2);
  ml("LinearRegressor", {table},
     {{"coefficients", Floats{1, 2, 3, 4}}, {"intercepts", Floats{1, 2}}, {"targets", number(2)}});
  ml("Normalizer", {table}, {{"norm", word("L2")}});
  ml("OneHotEncoder", {ints({2, 7})}, {{"cats_int64s", Ints{2, 3}}, {"zeros", number(1)}});
  ml("Scaler", {table}, {{"offset", Floats{1, 2}}, {"scale", Floats{3, 4}}});
  const Attributes stump = {{"nodes_treeids", Ints{0, 0, 0}},
                            {"nodes_nodeids", Ints{0, 1, 2}},
                            {"nodes_featureids", Ints{1, 0, 0}},
                            {"nodes_values", Floats{0, 0, 0}},
                            {"nodes_modes", Words{"BRANCH_LEQ", "LEAF", "LEAF"}},
                            {"nodes_truenodeids", Ints{1, 0, 0}},
                            {"nodes_falsenodeids", Ints{2, 0, 0}},
                            {"nodes_missing_value_tracks_true", Ints{1, 0, 0}}};
  Attributes regressor = stump, classifier = stump;
  for (auto& [key, value] : Attributes{{"target_treeids", Ints{0, 0}},
                                       {"target_nodeids", Ints{1, 2}},
                                       {"target_ids", Ints{0, 1}},
                                       {"target_weights", Floats{-1, 2}},
                                       {"base_values", Floats{1, 2}},
                                       {"n_targets", number(2)}})
    regressor[key] = value;
  for (auto& [key, value] : Attributes{{"class_treeids", Ints{0, 0}},
                                       {"class_nodeids", Ints{1, 2}},
                                       {"class_ids", Ints{0, 1}},
                                       {"class_weights", Floats{1, 2}},
                                       {"classlabels_int64s", Ints{5, 6}}})
    classifier[key] = value;
  ml("TreeEnsembleRegressor", {table}, regressor);
  ml("TreeEnsembleClassifier", {table}, classifier, 2);
  ml("TreeEnsemble", {table},
     {{"tree_roots", Ints{0}},
      {"nodes_featureids", Ints{1}},
      {"nodes_splits", of({1}, {0})},
      {"nodes_modes", bytes({1})},
      {"nodes_truenodeids", Ints{0}},
      {"nodes_trueleafs", Ints{1}},
      {"nodes_falsenodeids", Ints{1}},
      {"nodes_falseleafs", Ints{1}},
      {"leaf_targetids", Ints{0, 1}},
      {"leaf_weights", of({2}, {1, 2})},
      {"n_targets", number(2)}});

  for (OpCase& c : all) {
    if (c.op.rfind("pare.", 0) == 0) c.domain = "pare", c.op = c.op.substr(5);
    // What kernels compute is other tests' business: here a rough bound is enough.
    c.relative = c.absolute = 1e-4;
  }
  return all;
}

}  // namespace pare::testing
