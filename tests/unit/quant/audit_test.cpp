// The audit passes what apply() wrote and notices every kind of tampering.
#include "quant/audit.h"

#include <gtest/gtest.h>

#include "tests/unit/quant/build_graph.h"

namespace pare::quant {
namespace {

struct Written {
  Graph source, file;
  Plan plan;
};

Written write(Target target, const char* scheme) {
  Written w;
  w.source = test::residual_block();
  ThreadPool pool(1);
  w.plan.placement = test::placement_in(w.source, target, scheme);
  for (const ActivationSite& site : w.plan.placement.activations)
    w.plan.activations.push_back(activation_from_range(site.format, {-1, 2, "minmax"}));
  w.plan.weights = plan_weights(w.source, w.plan.placement, "search", pool);
  w.file = apply(w.source, w.plan);
  return w;
}

TEST(Audit, PassesWhatWasWritten) {
  for (const Target target : {Target::kPare, Target::kTensorRT, Target::kOnnxRuntime})
    for (const char* scheme : {"int8", "uint8", "fp8"}) {
      if (target == Target::kTensorRT && std::string(scheme) == "uint8") continue;  // refused: zero points
      const Written w = write(target, scheme);
      const AuditResult result = audit(w.source, w.plan, w.file);
      for (const Mismatch& m : result.mismatches) ADD_FAILURE() << m.tensor << ": " << m.what;
      EXPECT_EQ(result.tensors, static_cast<std::int64_t>(w.plan.weights.size() + w.plan.activations.size()));
    }
}

void set_constant(Graph& graph, const char* value_name, Tensor tensor) {
  Value& value = graph.value(graph.find_value(value_name));
  value.constant = std::move(tensor);
}

TEST(Audit, NoticesOneChangedCode) {
  Written w = write(Target::kPare, "int8");
  Tensor codes = w.plan.weights[0].codes.clone();
  codes.mut<std::int8_t>()[17] = static_cast<std::int8_t>(codes.as<std::int8_t>()[17] ^ 1);
  set_constant(w.file, "w1_quantized", codes);
  const AuditResult result = audit(w.source, w.plan, w.file);
  ASSERT_EQ(result.mismatches.size(), 1u);
  EXPECT_EQ(result.mismatches[0].tensor, "w1");
}

TEST(Audit, NoticesAnotherScaleZeroPointAndAxis) {
  Written w = write(Target::kPare, "uint8");
  set_constant(w.file, "x_scale", Tensor::scalar(0.5f));
  EXPECT_FALSE(audit(w.source, w.plan, w.file).passed());
  w = write(Target::kPare, "uint8");
  set_constant(w.file, "relu1_zero_point", Tensor::from<std::uint8_t>(DType::kU8, {}, {3}));
  EXPECT_FALSE(audit(w.source, w.plan, w.file).passed());
  w = write(Target::kPare, "int8");
  for (const NodeId id : w.file.nodes())
    if (w.file.node(id).name == "wf_DequantizeLinear") w.file.node(id).attrs["axis"] = std::int64_t{1};
  EXPECT_FALSE(audit(w.source, w.plan, w.file).passed());
}

TEST(Audit, NoticesAWeightLeftFloat) {
  Written w = write(Target::kPare, "int8");
  for (const NodeId id : w.file.nodes())
    if (w.file.value(w.file.node(id).out[0]).name == "conv2")
      w.file.set_input(id, 1,
                       w.file.add_constant("w2_float", w.source.value(w.source.find_value("w2")).constant));
  const AuditResult result = audit(w.source, w.plan, w.file);
  ASSERT_EQ(result.mismatches.size(), 1u);
  EXPECT_EQ(result.mismatches[0].tensor, "w2");
}

}  // namespace
}  // namespace pare::quant
