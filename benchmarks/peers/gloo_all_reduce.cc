// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All-reduce of float32 by Gloo over loopback TCP, for bench_collective. No code of Sheaf. The
// fastest of its three algorithms counts.
//   peer_gloo RANKS
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "benchmarks/collective_rounds.h"

namespace {

void RunRank(int rank, int ranks, const std::string& directory) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(directory);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  std::vector<float> agreed(1);
  gloo::AllreduceHalvingDoubling<float> agree(context, {agreed.data()}, 1,
                                              gloo::ReductionFunction<float>::max);
  const auto largest = [&](double seconds) {
    agreed[0] = static_cast<float>(seconds);
    agree.run();
    return agreed[0];
  };
  for (size_t bytes : rounds::kSizes) {
    std::vector<float> array(bytes / sizeof(float), static_cast<float>(rank + 1));
    const std::vector<float*> pointers{array.data()};
    const int count = static_cast<int>(array.size());
    gloo::AllreduceHalvingDoubling<float> doubling(context, pointers, count);
    gloo::AllreduceRingChunked<float> ring(context, pointers, count);
    gloo::AllreduceBcube<float> bcube(context, pointers, count);
    doubling.run();
    const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
    floors::Require(array.front() == sum && array.back() == sum, "sum of Gloo");
    std::fill(array.begin(), array.end(), 0.0f);
    const auto barrier = [&] { gloo::BarrierAllToOne(context).run(); };
    rounds::Figure best{1e300, 1e300};
    gloo::Algorithm* const algorithms[] = {&doubling, &ring, &bcube};
    for (gloo::Algorithm* algorithm : algorithms) {
      const rounds::Figure figure = rounds::Measure([&] { algorithm->run(); }, barrier, largest);
      if (figure.median_us < best.median_us) best = figure;
    }
    if (rank == 0) rounds::PrintFigure(bytes, best);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::string directory = "/tmp/bench-gloo-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) {
      RunRank(rank, ranks, directory);
      std::fflush(stdout);
      _exit(0);
    }
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  std::filesystem::remove_all(directory);
  return failed == 0 ? 0 : 1;
}
