// Elements put back into a larger tensor.
//
//   Col2Im         the inverse of cutting an image into blocks: elements of blocks that overlap are added.
//                  input [n, c * block, blocks], image_shape and block_shape as inputs; strides, pads,
//                  dilations. All numbers; integers wrap, bool is "or"
//   MaxUnpool      y = 0 but at indices, where it is x: the inverse of MaxPool. Indices are flat in the
//                  tensor of the size that kernel_shape, strides and pads give; output_shape may ask for a
//                  larger one, in whose first corner that lies. An index outside of it: Error kBadFile
//   CenterCropPad  the middle of x on `axes`, or x in the middle of zeros; an odd element is cut from or
//                  added at the end. Any type of whole bytes
//   TensorScatter  a KV cache with `update` written from write_indices[batch] on along `axis`; mode
//                  circular goes on at the start. linear: beyond the end is Error kBadFile. Any type of
//                  whole bytes
//
// Source: ONNX Col2Im-18, MaxUnpool-22, CenterCropPad-18, TensorScatter-24.
#pragma once

namespace pare {

class Registry;
void add_fold_references(Registry& registry);

}  // namespace pare
