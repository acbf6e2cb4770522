// A product of two thin matrices beside a quantized weight: W x is computed as Q x + B (A x), Q the codes and
// B [rows, rank], A [rank, cols] in float. What the codes cannot hold in the directions that matter goes into
// BA.
//
// For given codes the best BA of a rank, by
//   E |(W - Q - BA) x|^2 = tr((E - BA) G (E - BA)^T) with E = W - Q, is
//   BA = U U^T E,   U the `rank` dominant eigenvectors of E G E^T
// (the projection that keeps most of E G^1/2; no root or inverse of G is needed). Codes and BA are improved
// in turn: Q of W - BA, then BA of W - Q, starting from the BA of W itself (SVDQuant, arXiv 2411.05007) and
// from nothing (LQER, arXiv 2402.02446); the pair of least loss is kept.
//
// Eigenvectors by subspace iteration from fixed directions: the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/thread_pool.h"
#include "quant/grid/weight_rows.h"

namespace pare::quant {

struct LowRank {
  std::int64_t rank = 0;
  std::vector<float> b, a;  // [rows, rank], [rank, cols]
};

// The best BA for an error E. `gram` [cols, cols] row by row, symmetric; null: the identity (a plain SVD).
// rank is cut to the smaller side.
LowRank low_rank_of(const WeightRows& error, const double* gram, std::int64_t rank, ThreadPool& pool);

// W - BA.
WeightRows without(const WeightRows& weight, const LowRank& part);

struct LowRankChoice {
  LowRank part;           // rank 0: the plain codes were better
  WeightRows residual;    // what the codes stand for: W - BA
  WeightRows target;      // what was rounded: W less the BA of the round before
  WeightRows rounded;     // Q: what the codes say
  double loss = 0;        // of Q + BA
  double plain_loss = 0;  // of Q(W)
};

// `round` is Q, in place; `loss` judges an error W - Q - BA.
LowRankChoice choose_low_rank(const WeightRows& weight, const double* gram, std::int64_t rank,
                              const std::function<void(WeightRows&)>& round,
                              const std::function<double(const WeightRows&)>& loss, ThreadPool& pool);

}  // namespace pare::quant
