// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All-reduce of float32 by MPI, for bench_collective. No code of Sheaf.
//   mpirun -n RANKS peer_mpi
#include <mpi.h>

#include "benchmarks/collective_rounds.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (size_t bytes : rounds::kSizes) {
    const int count = static_cast<int>(bytes / sizeof(float));
    std::vector<float> array(static_cast<size_t>(count), static_cast<float>(rank + 1));
    const auto reduce = [&] {
      MPI_Allreduce(MPI_IN_PLACE, array.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    reduce();
    const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
    floors::Require(array.front() == sum && array.back() == sum, "sum of MPI");
    std::fill(array.begin(), array.end(), 0.0f);
    const auto largest = [](double seconds) {
      MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      return seconds;
    };
    const rounds::Figure figure =
        rounds::Measure(reduce, [] { MPI_Barrier(MPI_COMM_WORLD); }, largest);
    if (rank == 0) rounds::PrintFigure(bytes, figure);
  }
  MPI_Finalize();
  return 0;
}
