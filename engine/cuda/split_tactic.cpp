#include "engine/build/plan/program.h"
#include "engine/cuda/compile.h"
#include "engine/cuda/tactic.h"

namespace pare::cuda {
namespace {

class Split final : public Tactic {
 public:
  Split(std::unique_ptr<Tactic> product, const KernelSource& source, const Tensor& binary)
      : product_(std::move(product)),
        activation_(make_generated(source, binary)),
        name_("split:" + product_->name()) {}
  const std::string& name() const override { return name_; }
  std::int64_t workspace() const override { return product_->workspace(); }
  int kernels() const override { return 2; }
  void launch(CUstream stream, const Operands& at) override {
    product_->launch(stream, at);
    Operands in_place;
    in_place.in = {at.out[0]};
    in_place.out = {at.out[0]};
    in_place.eager = at.eager;
    activation_->launch(stream, in_place);
  }

 private:
  std::unique_ptr<Tactic> product_, activation_;
  std::string name_;
};

}  // namespace

std::vector<std::unique_ptr<Tactic>> split_tactics(const EnginePlan& plan, const PlanLayer& layer,
                                                   const std::string& wanted, int most, std::string& why_not,
                                                   SplitKernel* kernel) {
  std::vector<std::unique_ptr<Tactic>> tactics;
  if (layer.kind != LayerKind::kGemm || layer.epilogue.identity() || layer.epilogue.relu() ||
      bits(type_of(plan, layer.out[0])) == 8) {
    why_not = "no activation that cuBLASLt lacks";
    return tactics;
  }
  PlanLayer product = layer;
  product.epilogue.act = Activation{};
  PlanLayer after;
  after.kind = LayerKind::kPointwise;
  after.in = {layer.out[0]};
  after.out = {layer.out[0]};
  after.program.dims = layer.out[0].dims;
  after.program.leaves = {ProgramLeaf{}};
  ProgramStep read;
  read.op = "leaf";
  after.program.steps = {read};
  after.program.results = {append_activation(after.program, layer.epilogue.act, 0)};
  const std::vector<KernelSource> sources = pointwise_kernels(plan, after, why_not);
  if (sources.empty()) return tactics;
  const std::string inner = wanted.empty() ? "" : wanted.substr(6);
  auto products = lt_tactics(plan, product, inner, most, why_not);
  if (products.empty()) return tactics;
  SplitKernel local;
  SplitKernel& k = kernel == nullptr ? local : *kernel;
  k.hash = source_hash(sources[0].code);
  const auto known = plan.binaries.find(k.hash);
  if (known != plan.binaries.end()) {
    k.binary = known->second;
  } else {
    const std::string code = compile(sources[0].code, "sm_90a");
    k.binary =
        Tensor::copy_of(DType::kU8, {static_cast<std::int64_t>(code.size())}, code.data(), code.size());
  }
  for (auto& p : products) tactics.push_back(std::make_unique<Split>(std::move(p), sources[0], k.binary));
  return tactics;
}

}  // namespace pare::cuda
