#include "engine/ops/registry.h"

#include "engine/base/error.h"

namespace pare {

void Registry::add(const Kernel& kernel) { kernels_.push_back(kernel); }

std::vector<const Kernel*> Registry::candidates(std::string_view domain, std::string_view op,
                                                Backend backend) const {
  std::vector<const Kernel*> found;
  for (const Kernel& kernel : kernels_)
    if (kernel.op == op && kernel.domain == domain && kernel.backend == backend) found.push_back(&kernel);
  return found;
}

const Kernel& Registry::pick(const OpCall& call, Backend backend, bool only_invariant) const {
  const bool open = call.has_open_sizes();
  std::string reasons;
  for (const Kernel* kernel : candidates(call.node->domain, call.node->op, backend)) {
    const std::string reason =
        only_invariant && !kernel->invariant ? std::string("its results depend on the batch or on threads")
        : open && !kernel->allocates ? std::string("the size of an output follows from the data alone")
                                     : kernel->why_not(call);
    if (reason.empty()) return *kernel;
    reasons += fmt::format("\n  {}: {}", kernel->name, reason);
  }
  std::string types;
  for (const TensorView& view : call.in)
    types += fmt::format("{}{}{}", types.empty() ? "" : ", ", view.present() ? name(view.dtype) : "absent",
                         view.present() ? to_string(view.dims) : "");
  const Node& node = *call.node;
  throw make_error(ErrorCode::kUnsupported, "no kernel takes {}{}{}({}):{}", node.domain,
                   node.domain.empty() ? "" : ".", node.op, types,
                   reasons.empty() ? "\n  none is registered for this operator" : reasons)
      .at(fmt::format("node '{}'", node.name))
      .hint("`pare ops` lists the kernels of this build");
}

}  // namespace pare
