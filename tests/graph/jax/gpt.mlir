module @jit_gpt_scan attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf32> loc("params['beta']"), %arg1: tensor<2x8xf32> loc("params['blocks']['beta_1']"), %arg2: tensor<2x8xf32> loc("params['blocks']['beta_2']"), %arg3: tensor<2x8x16xf32> loc("params['blocks']['fc']"), %arg4: tensor<2x8xf32> loc("params['blocks']['gamma_1']"), %arg5: tensor<2x8xf32> loc("params['blocks']['gamma_2']"), %arg6: tensor<2x16x8xf32> loc("params['blocks']['out']"), %arg7: tensor<2x8x8xf32> loc("params['blocks']['proj']"), %arg8: tensor<2x8x24xf32> loc("params['blocks']['qkv']"), %arg9: tensor<8xf32> loc("params['gamma']"), %arg10: tensor<8x8xf32> loc("params['wpe']"), %arg11: tensor<16x8xf32> loc("params['wte']"), %arg12: tensor<2x6xi32> loc("tokens"), %arg13: tensor<2x6xi32> loc("targets")) -> (tensor<f32> {jax.result_info = "result"}) {
    %0 = call @_take(%arg11, %arg12) : (tensor<16x8xf32>, tensor<2x6xi32>) -> tensor<2x6x8xf32>
    %1 = stablehlo.slice %arg10 [0:6, 0:8] : (tensor<8x8xf32>) -> tensor<6x8xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [1, 2] : (tensor<6x8xf32>) -> tensor<1x6x8xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x6x8xf32>) -> tensor<2x6x8xf32>
    %4 = stablehlo.add %0, %3 : tensor<2x6x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %5:10 = stablehlo.while(%iterArg = %arg1, %iterArg_5 = %arg2, %iterArg_6 = %arg3, %iterArg_7 = %arg4, %iterArg_8 = %arg5, %iterArg_9 = %arg6, %iterArg_10 = %arg7, %iterArg_11 = %arg8, %iterArg_12 = %c, %iterArg_13 = %4) : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8x16xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x16x8xf32>, tensor<2x8x8xf32>, tensor<2x8x24xf32>, tensor<i32>, tensor<2x6x8xf32>
    cond {
      %c_14 = stablehlo.constant dense<2> : tensor<i32>
      %32 = stablehlo.compare LT, %iterArg_12, %c_14, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %32 : tensor<i1>
    } do {
      %32 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_12) : (tensor<2x8xf32>, tensor<i32>) -> tensor<8xf32>
      %33 = func.call @dynamic_index_in_dim(%iterArg_5, %iterArg_12) : (tensor<2x8xf32>, tensor<i32>) -> tensor<8xf32>
      %34 = func.call @dynamic_index_in_dim_0(%iterArg_6, %iterArg_12) : (tensor<2x8x16xf32>, tensor<i32>) -> tensor<8x16xf32>
      %35 = func.call @dynamic_index_in_dim(%iterArg_7, %iterArg_12) : (tensor<2x8xf32>, tensor<i32>) -> tensor<8xf32>
      %36 = func.call @dynamic_index_in_dim(%iterArg_8, %iterArg_12) : (tensor<2x8xf32>, tensor<i32>) -> tensor<8xf32>
      %37 = func.call @dynamic_index_in_dim_1(%iterArg_9, %iterArg_12) : (tensor<2x16x8xf32>, tensor<i32>) -> tensor<16x8xf32>
      %38 = func.call @dynamic_index_in_dim_2(%iterArg_10, %iterArg_12) : (tensor<2x8x8xf32>, tensor<i32>) -> tensor<8x8xf32>
      %39 = func.call @dynamic_index_in_dim_3(%iterArg_11, %iterArg_12) : (tensor<2x8x24xf32>, tensor<i32>) -> tensor<8x24xf32>
      %40 = func.call @closed_call(%iterArg_13, %32, %33, %34, %35, %36, %37, %38, %39) : (tensor<2x6x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x24xf32>) -> tensor<2x6x8xf32>
      %c_14 = stablehlo.constant dense<1> : tensor<i32>
      %41 = stablehlo.add %iterArg_12, %c_14 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_5, %iterArg_6, %iterArg_7, %iterArg_8, %iterArg_9, %iterArg_10, %iterArg_11, %41, %40 : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8x16xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x16x8xf32>, tensor<2x8x8xf32>, tensor<2x8x24xf32>, tensor<i32>, tensor<2x6x8xf32>
    }
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.reduce(%5#9 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %9 = stablehlo.divide %7, %8 : tensor<2x6x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %11 = stablehlo.subtract %5#9, %10 : tensor<2x6x8xf32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %12 = call @_var(%5#9, %c_1) : (tensor<2x6x8xf32>, tensor<i32>) -> tensor<2x6x1xf32>
    %cst_2 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %14 = stablehlo.add %12, %13 : tensor<2x6x1xf32>
    %15 = stablehlo.sqrt %14 : tensor<2x6x1xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %17 = stablehlo.divide %11, %16 : tensor<2x6x8xf32>
    %18 = stablehlo.broadcast_in_dim %arg9, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x6x8xf32>
    %20 = stablehlo.multiply %17, %19 : tensor<2x6x8xf32>
    %21 = stablehlo.broadcast_in_dim %arg0, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x6x8xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x6x8xf32>
    %24 = stablehlo.transpose %arg11, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
    %25 = stablehlo.dot_general %23, %24, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x8xf32>, tensor<8x16xf32>) -> tensor<2x6x16xf32>
    %26 = call @log_softmax(%25) : (tensor<2x6x16xf32>) -> tensor<2x6x16xf32>
    %27 = stablehlo.broadcast_in_dim %arg13, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %28 = call @take_along_axis(%26, %27) : (tensor<2x6x16xf32>, tensor<2x6x1xi32>) -> tensor<2x6x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %29 = stablehlo.reduce(%28 init: %cst_3) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<f32>
    %cst_4 = stablehlo.constant dense<1.200000e+01> : tensor<f32>
    %30 = stablehlo.divide %29, %cst_4 : tensor<f32>
    %31 = stablehlo.negate %30 : tensor<f32>
    return %31 : tensor<f32>
  }
  func.func private @_take(%arg0: tensor<16x8xf32>, %arg1: tensor<2x6xi32>) -> tensor<2x6x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x6xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi1>
    %c_0 = stablehlo.constant dense<16> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x6xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<2x6xi32>
    %4 = call @_where(%1, %3, %arg1) : (tensor<2x6xi1>, tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %c_1 = stablehlo.constant dense<15> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [2] : (tensor<1xi32>) -> tensor<1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x1xi32>) -> tensor<2x6x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<2x6x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [2] : (tensor<2x6x1xi1>, tensor<i1>) -> tensor<2x6xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<16x8xf32>, tensor<2x6x1xi32>) -> tensor<2x6x8xf32>
    %14 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (tensor<2x6xi1>) -> tensor<2x6x8xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %16 = stablehlo.select %14, %13, %15 : tensor<2x6x8xi1>, tensor<2x6x8xf32>
    return %16 : tensor<2x6x8xf32>
  }
  func.func private @_where(%arg0: tensor<2x6xi1>, %arg1: tensor<2x6xi32>, %arg2: tensor<2x6xi32>) -> tensor<2x6xi32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<2x6xi1>, tensor<2x6xi32>
    return %0 : tensor<2x6xi32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<2x8xf32>, %arg1: tensor<i32>) -> tensor<8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, sizes = [1, 8] : (tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
  func.func private @dynamic_index_in_dim_0(%arg0: tensor<2x8x16xf32>, %arg1: tensor<i32>) -> tensor<8x16xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 8, 16] : (tensor<2x8x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x8x16xf32>) -> tensor<8x16xf32>
    return %1 : tensor<8x16xf32>
  }
  func.func private @dynamic_index_in_dim_1(%arg0: tensor<2x16x8xf32>, %arg1: tensor<i32>) -> tensor<16x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 16, 8] : (tensor<2x16x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x16x8xf32>) -> tensor<16x8xf32>
    return %1 : tensor<16x8xf32>
  }
  func.func private @dynamic_index_in_dim_2(%arg0: tensor<2x8x8xf32>, %arg1: tensor<i32>) -> tensor<8x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 8, 8] : (tensor<2x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
  func.func private @dynamic_index_in_dim_3(%arg0: tensor<2x8x24xf32>, %arg1: tensor<i32>) -> tensor<8x24xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 8, 24] : (tensor<2x8x24xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x24xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x8x24xf32>) -> tensor<8x24xf32>
    return %1 : tensor<8x24xf32>
  }
  func.func private @closed_call(%arg0: tensor<2x6x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>, %arg3: tensor<8x16xf32>, %arg4: tensor<8xf32>, %arg5: tensor<8xf32>, %arg6: tensor<16x8xf32>, %arg7: tensor<8x8xf32>, %arg8: tensor<8x24xf32>) -> tensor<2x6x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x6x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %6 = call @_var(%arg0, %c) : (tensor<2x6x8xf32>, tensor<i32>) -> tensor<2x6x1xf32>
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %8 = stablehlo.add %6, %7 : tensor<2x6x1xf32>
    %9 = stablehlo.sqrt %8 : tensor<2x6x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %11 = stablehlo.divide %5, %10 : tensor<2x6x8xf32>
    %12 = stablehlo.broadcast_in_dim %arg4, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x6x8xf32>
    %14 = stablehlo.multiply %11, %13 : tensor<2x6x8xf32>
    %15 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x6x8xf32>
    %17 = stablehlo.add %14, %16 : tensor<2x6x8xf32>
    %18 = stablehlo.dot_general %17, %arg8, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x8xf32>, tensor<8x24xf32>) -> tensor<2x6x24xf32>
    %19 = stablehlo.slice %18 [0:2, 0:6, 0:8] : (tensor<2x6x24xf32>) -> tensor<2x6x8xf32>
    %20 = stablehlo.slice %18 [0:2, 0:6, 8:16] : (tensor<2x6x24xf32>) -> tensor<2x6x8xf32>
    %21 = stablehlo.slice %18 [0:2, 0:6, 16:24] : (tensor<2x6x24xf32>) -> tensor<2x6x8xf32>
    %22 = stablehlo.reshape %19 : (tensor<2x6x8xf32>) -> tensor<2x6x2x4xf32>
    %23 = stablehlo.reshape %20 : (tensor<2x6x8xf32>) -> tensor<2x6x2x4xf32>
    %24 = stablehlo.reshape %21 : (tensor<2x6x8xf32>) -> tensor<2x6x2x4xf32>
    %25 = stablehlo.dot_general %22, %23, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x2x6x6xf32>
    %cst_2 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x2x6x6xf32>
    %27 = stablehlo.divide %25, %26 : tensor<2x2x6x6xf32>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %28 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<i1>) -> tensor<6x6xi1>
    %29 = call @tril(%28) : (tensor<6x6xi1>) -> tensor<6x6xi1>
    %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %30 = call @_where_5(%29, %27, %cst_4) : (tensor<6x6xi1>, tensor<2x2x6x6xf32>, tensor<f32>) -> tensor<2x2x6x6xf32>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %31 = stablehlo.reduce(%30 init: %cst_5) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x6x6xf32>, tensor<f32>) -> tensor<2x2x6xf32>
    %cst_6 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %32 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2x2x6xf32>
    %33 = stablehlo.maximum %32, %31 : tensor<2x2x6xf32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0, 1, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6x1xf32>
    %35 = stablehlo.broadcast_in_dim %34, dims = [0, 1, 2, 3] : (tensor<2x2x6x1xf32>) -> tensor<2x2x6x6xf32>
    %36 = stablehlo.subtract %30, %35 : tensor<2x2x6x6xf32>
    %37 = stablehlo.exponential %36 : tensor<2x2x6x6xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %38 = stablehlo.reduce(%37 init: %cst_7) applies stablehlo.add across dimensions = [3] : (tensor<2x2x6x6xf32>, tensor<f32>) -> tensor<2x2x6xf32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [0, 1, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6x1xf32>
    %40 = stablehlo.broadcast_in_dim %39, dims = [0, 1, 2, 3] : (tensor<2x2x6x1xf32>) -> tensor<2x2x6x6xf32>
    %41 = stablehlo.divide %37, %40 : tensor<2x2x6x6xf32>
    %42 = stablehlo.dot_general %24, %41, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x6x2x4xf32>, tensor<2x2x6x6xf32>) -> tensor<2x2x4x6xf32>
    %43 = stablehlo.transpose %42, dims = [0, 3, 1, 2] : (tensor<2x2x4x6xf32>) -> tensor<2x6x2x4xf32>
    %44 = stablehlo.reshape %43 : (tensor<2x6x2x4xf32>) -> tensor<2x6x8xf32>
    %45 = stablehlo.dot_general %44, %arg7, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x8xf32>, tensor<8x8xf32>) -> tensor<2x6x8xf32>
    %46 = stablehlo.add %arg0, %45 : tensor<2x6x8xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %47 = stablehlo.reduce(%46 init: %cst_8) applies stablehlo.add across dimensions = [2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6xf32>
    %48 = stablehlo.broadcast_in_dim %47, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_9 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %49 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %50 = stablehlo.divide %48, %49 : tensor<2x6x1xf32>
    %51 = stablehlo.broadcast_in_dim %50, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %52 = stablehlo.subtract %46, %51 : tensor<2x6x8xf32>
    %c_10 = stablehlo.constant dense<0> : tensor<i32>
    %53 = call @_var(%46, %c_10) : (tensor<2x6x8xf32>, tensor<i32>) -> tensor<2x6x1xf32>
    %cst_11 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %55 = stablehlo.add %53, %54 : tensor<2x6x1xf32>
    %56 = stablehlo.sqrt %55 : tensor<2x6x1xf32>
    %57 = stablehlo.broadcast_in_dim %56, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %58 = stablehlo.divide %52, %57 : tensor<2x6x8xf32>
    %59 = stablehlo.broadcast_in_dim %arg5, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %60 = stablehlo.broadcast_in_dim %59, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x6x8xf32>
    %61 = stablehlo.multiply %58, %60 : tensor<2x6x8xf32>
    %62 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %63 = stablehlo.broadcast_in_dim %62, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x6x8xf32>
    %64 = stablehlo.add %61, %63 : tensor<2x6x8xf32>
    %65 = stablehlo.dot_general %64, %arg3, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x8xf32>, tensor<8x16xf32>) -> tensor<2x6x16xf32>
    %66 = stablehlo.multiply %65, %65 : tensor<2x6x16xf32>
    %67 = stablehlo.multiply %66, %65 : tensor<2x6x16xf32>
    %cst_12 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %68 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<2x6x16xf32>
    %69 = stablehlo.multiply %68, %67 : tensor<2x6x16xf32>
    %70 = stablehlo.add %65, %69 : tensor<2x6x16xf32>
    %cst_13 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %71 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<2x6x16xf32>
    %72 = stablehlo.multiply %71, %70 : tensor<2x6x16xf32>
    %73 = stablehlo.tanh %72 : tensor<2x6x16xf32>
    %cst_14 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %74 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x6x16xf32>
    %75 = stablehlo.add %74, %73 : tensor<2x6x16xf32>
    %cst_15 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %76 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<2x6x16xf32>
    %77 = stablehlo.multiply %76, %75 : tensor<2x6x16xf32>
    %78 = stablehlo.multiply %65, %77 : tensor<2x6x16xf32>
    %79 = stablehlo.dot_general %78, %arg6, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x16xf32>, tensor<16x8xf32>) -> tensor<2x6x8xf32>
    %80 = stablehlo.add %46, %79 : tensor<2x6x8xf32>
    return %80 : tensor<2x6x8xf32>
  }
  func.func private @_var(%arg0: tensor<2x6x8xf32>, %arg1: tensor<i32>) -> tensor<2x6x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x6x8xf32>
    %6 = chlo.square %5 : tensor<2x6x8xf32> -> tensor<2x6x8xf32>
    %7 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %8 = stablehlo.subtract %cst_1, %7 : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<2x6x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.compare GT, %8, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = call @_where_4(%13, %12, %cst_4) : (tensor<i1>, tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6x1xf32>
    return %14 : tensor<2x6x1xf32>
  }
  func.func private @_where_4(%arg0: tensor<i1>, %arg1: tensor<2x6x1xf32>, %arg2: tensor<f32>) -> tensor<2x6x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<2x6x1xf32>
    return %2 : tensor<2x6x1xf32>
  }
  func.func private @tril(%arg0: tensor<6x6xi1>) -> tensor<6x6xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<6x6xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<6x6xi32>
    %2 = stablehlo.add %0, %1 : tensor<6x6xi32>
    %3 = stablehlo.iota dim = 1 : tensor<6x6xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<6x6xi32>, tensor<6x6xi32>) -> tensor<6x6xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<6x6xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<6x6xi1>, tensor<6x6xi1>
    return %6 : tensor<6x6xi1>
  }
  func.func private @_where_5(%arg0: tensor<6x6xi1>, %arg1: tensor<2x2x6x6xf32>, %arg2: tensor<f32>) -> tensor<2x2x6x6xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<6x6xi1>) -> tensor<2x2x6x6xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x2x6x6xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<2x2x6x6xi1>, tensor<2x2x6x6xf32>
    return %3 : tensor<2x2x6x6xf32>
  }
  func.func private @log_softmax(%arg0: tensor<2x6x16xf32>) -> tensor<2x6x16xf32> {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<2x6xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x6x16xf32>
    %6 = stablehlo.exponential %5 : tensor<2x6x16xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %9 = stablehlo.log %8 : tensor<2x6x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<2x6x16xf32>
    return %11 : tensor<2x6x16xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<2x6x16xf32>, %arg1: tensor<2x6x1xi32>) -> tensor<2x6x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi1>
    %c_0 = stablehlo.constant dense<16> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<2x6x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<2x6x1xi1>, tensor<2x6x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<2x6x1xi32>) -> tensor<2x6x1x1xi32>
    %c_1 = stablehlo.constant dense<15> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x6x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<2x6x1x1xi32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<2x6x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<2x6x1x1xi32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<2x6x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [3] : (tensor<2x6x1x1xi1>, tensor<i1>) -> tensor<2x6x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<2x6x16xf32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<2x6x1xi1>, tensor<2x6x1xf32>
    return %15 : tensor<2x6x1xf32>
  }
}
