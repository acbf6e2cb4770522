#include "graphsurgeon/passes/passes.h"

#include <algorithm>
#include <vector>

namespace pare {

// What each does stands in passes.h. Why in this order: shapes first, since constants follow from them, and
// branches and loops once their conditions are constant; then what takes nodes into linear layers, while
// their neighbours are still plain; then chains of moves become one, so that transposes find each other;
// equal things are merged last, when there is least to compare, and what nobody reads goes.
std::span<const Pass* const> simplify_passes() {
  static const Pass* const kPasses[] = {&kFoldShapes,
                                        &kFoldConstants,
                                        &kPullInConstants,
                                        &kInlineIf,
                                        &kUnrollLoop,
                                        &kRemoveIdentity,
                                        &kFoldBatchNormalization,
                                        &kFoldPad,
                                        &kFoldChannelArithmetic,
                                        &kMergeReshapedTranspose,
                                        &kMergeAdjacent,
                                        &kMergeSlices,
                                        &kMergeConcats,
                                        &kPushTransposes,
                                        &kFoldTranspose,
                                        &kFoldMatMulAdd,
                                        &kMergeConstants,
                                        &kMergeEqualNodes,
                                        &kRemoveDeadCode};
  return kPasses;
}

std::span<const Pass* const> recognize_passes() {
  static const Pass* const kPasses[] = {
      &kRecognizeLayerNormalization, &kRecognizeRmsNormalization, &kRecognizeGelu,
      &kRecognizeActivations,        &kRecognizeRotaryEmbedding,  &kRecognizeAttention};
  return kPasses;
}

std::span<const Pass* const> all_passes() {
  static const std::vector<const Pass*> kPasses = [] {
    std::vector<const Pass*> list;
    // Shapes and constants first: the patterns have numbers in them.
    for (const Pass* pass : {&kFoldShapes, &kFoldConstants, &kPullInConstants, &kInlineIf, &kUnrollLoop,
                             &kRemoveIdentity, &kMergeEqualNodes, &kMergeReshapedTranspose, &kMergeAdjacent})
      list.push_back(pass);
    for (const Pass* pass : recognize_passes()) list.push_back(pass);
    for (const Pass* pass : simplify_passes())
      if (std::find(list.begin(), list.end(), pass) == list.end()) list.push_back(pass);
    return list;
  }();
  return kPasses;
}

}  // namespace pare
