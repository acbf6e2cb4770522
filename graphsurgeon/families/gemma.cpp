// Gemma: embeddings times the root of their width, norms by 1 + w, a head that is the embedding. Gemma 2:
// norms around attention and mlp, windows in every other layer, scores and logits capped. Gemma 3: norms by
// head in place of the caps, layers with a window turn at another rate.
#include <cmath>

#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

DecoderParts gemma_parts(const ModelConfig& config) {
  DecoderParts parts;
  parts.norm_offset = 1;
  parts.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  return parts;
}

}  // namespace

Graph build_gemma(NetBuilder& net) { return build_decoder(net, gemma_parts(net.config())); }

Graph build_gemma2(NetBuilder& net) {
  DecoderParts parts = gemma_parts(net.config());
  parts.outer_norms = true;
  return build_decoder(net, parts);
}

Graph build_gemma3(NetBuilder& net) {
  DecoderParts parts = gemma_parts(net.config());
  parts.outer_norms = true;
  parts.head_norms = true;
  return build_decoder(net, parts);
}

}  // namespace pare
