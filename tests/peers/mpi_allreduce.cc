// The time of MPI_Allreduce, in place, of floats: what `lockstep bench collectives` is compared
// with.
//
//   mpirun -n RANKS mpi_allreduce REPEATS BYTES...
//
// Before each repetition every rank writes its vector anew, as after a backward pass; small vectors
// are reduced many times in a repetition. Rank 0 prints, for each size, the bytes and the median
// microseconds of the slowest rank.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

double slowest(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

// Seconds of one all-reduce, on the slowest rank, of `times` in a row.
double time_once(std::vector<float>& vector, int times) {
  std::fill(vector.begin(), vector.end(), 0.0f);  // whose sums stay as they are
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < times; ++i)
    MPI_Allreduce(MPI_IN_PLACE,
                  vector.data(),
                  static_cast<int>(vector.size()),
                  MPI_FLOAT,
                  MPI_SUM,
                  MPI_COMM_WORLD);
  return slowest((MPI_Wtime() - start) / times);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int repeats = argc > 2 ? std::atoi(argv[1]) : 0;
  if (repeats < 1) {
    if (rank == 0) std::fprintf(stderr, "usage: mpi_allreduce REPEATS BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int a = 2; a < argc; ++a) {
    const long bytes = std::atol(argv[a]);
    std::vector<float> vector(static_cast<size_t>(bytes) / sizeof(float));
    time_once(vector, 1);  // warm
    const int times = std::clamp(static_cast<int>(1e-3 / time_once(vector, 3)), 1, 10000);
    std::vector<double> seconds(static_cast<size_t>(repeats));
    for (double& s : seconds) s = time_once(vector, times);
    std::sort(seconds.begin(), seconds.end());
    if (rank == 0) std::printf("%ld %.3f\n", bytes, seconds[seconds.size() / 2] * 1e6);
  }
  MPI_Finalize();
  return 0;
}
