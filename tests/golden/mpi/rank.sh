rank=${PMI_RANK:-${MV2_COMM_WORLD_RANK:-${MPIRUN_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-}}}}}
size=${PMI_SIZE:-${MV2_COMM_WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-}}}
  "$1" openmpi 'Open MPI' '(out of a total of 1)' '' OMPI_MCA_mpi_show_mca_params=enviro OMPI_MCA_mpi_show_mca_params_file=%
  "$1" intelmpi 'Intel(R) MPI' '' 'Intel(R) MPI,MPICH,MVAPICH' I_MPI_TUNING_BIN_DUMP=%
