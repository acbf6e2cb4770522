// Mixtral: Mistral with a mixture of experts in place of each mlp.
#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

ValueId experts(NetBuilder& net, ValueId x, std::int64_t, const std::string& block) {
  return mix_experts(net, x, block + ".block_sparse_moe", {"w1", "w3", "w2"});
}

}  // namespace

Graph build_mixtral(NetBuilder& net) {
  DecoderParts parts;
  parts.mlp = experts;
  return build_decoder(net, parts);
}

}  // namespace pare
