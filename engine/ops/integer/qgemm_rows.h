// Rows of A made on the fly, times packed B, finished and stored: the loop around the tiles of qgemm.h.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/integer/qfinish.h"
#include "engine/ops/integer/qgemm.h"

namespace pare {

// Where rows of A come from: a matrix as it lies, or the windows of a convolution.
class QRowSource {
 public:
  virtual ~QRowSource() = default;
  // Rows [row, row + rows) in the form of `b`, b.row_bytes() apart. Bytes behind k codes may stay as they
  // are.
  virtual void gather(const QPacked& b, std::int64_t row, std::int64_t rows, std::uint8_t* a) const = 0;
};

// y rows [0, rows) and all columns of b. Without a pool on the calling thread. The cut into pieces does not
// show in the result: sums are exact, and each element is finished alone.
void qgemm_rows(const QPacked& b, const QRowSource& source, std::int64_t rows, const QFinish& finish,
                ThreadPool* pool);

}  // namespace pare
