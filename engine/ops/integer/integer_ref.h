// The integer operators of opset 10 and 21, plain: exact int32 sums.
//
//   MatMulInteger   sum (a - za)(b - zb); za a number or one a row, zb a number or one a column
//   ConvInteger     the same for convolutions; zw a number or one an output channel
//   (in products of many matrices zero points and scales may be one a row, or column, of every matrix)
//   QLinearMatMul also takes 8 bit floats, with sums in double
//   QLinearMatMul, QLinearConv   saturate(rne(sum * (sa sb / sy)) + zy), bias int32 added before
//   DynamicQuantizeLinear  range [min(0, x), max(0, x)], scale (max - min) / 255, zero point rne(-min /
//   scale);
//                   NaN is no part of the range and has code 0; an all-zero tensor has scale 0 and codes 0
//
// Codes are int8 or uint8. Sums wrap beyond int32, as the specification's accumulator does.
// Source: ONNX MatMulInteger-10, ConvInteger-10, QLinearMatMul-21, QLinearConv-10, DynamicQuantizeLinear-11.
#pragma once

namespace pare {

class Registry;
void add_integer_kernels(Registry& registry);  // tiles of qgemm.h
void add_integer_references(Registry& registry);

}  // namespace pare
