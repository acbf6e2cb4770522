// Phi-3: queries, keys and values from one matrix, gate and up from another.
#include "graphsurgeon/families/family.h"

namespace pare {

Graph build_phi3(NetBuilder& net) {
  DecoderParts parts;
  parts.fused = true;
  return build_decoder(net, parts);
}

}  // namespace pare
