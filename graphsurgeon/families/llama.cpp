// Llama 2 and 3, SmolLM2, Mistral (a window over the keys), Qwen 2 (biases of q, k, v): ModelConfig says it
// all.
#include "graphsurgeon/families/family.h"

namespace pare {

Graph build_llama(NetBuilder& net) { return build_decoder(net, {}); }

}  // namespace pare
