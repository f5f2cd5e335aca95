package layoutopt;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable$;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.BaseEvalPython;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils$;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.LogicalRDD$;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.SchemaPruning$;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning$;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * An optimiser rule that replaces each scan of a registered table by a scan of the blocks that may match.
 *
 * A registered table is a {@link LogicalRelation} over files of the format {@link RegisteredFormat}, with the table's
 * schema. The rule sends the scan's condition and columns to Python, and replaces the scan by the returned plan. Spark's
 * Janino compiles this file in the driver; executors need none of its classes.
 */
public class ReadBlocks extends Rule {
  /** The option of a relation with the id of its table. */
  public static final String OPTION = "layoutopt";
  // Substituting a chain of computed columns may double the expression at each step.
  private static final int MOST_ABOVE = 1000;
  private static final AtomicLong TOKENS = new AtomicLong();
  private static final ThreadLocal ONLY_PLANNING = new ThreadLocal();
  private static final Map PLANNING = Collections.synchronizedMap(new WeakHashMap());

  private final java.util.function.BiFunction handler;

  private final Map usual;

  /**
   * handler: called with a scan as JSON and the {@link Scan}; returns a plan, or null to leave the whole table.
   * usual: the settings under which expressions have the meaning that layoutopt knows.
   */
  public ReadBlocks(java.util.function.BiFunction handler, Map usual) {
    this.handler = handler;
    this.usual = new HashMap(usual);
  }

  /** A session setting that may change the meaning of expressions, as key=value; null if there is none. */
  private String unusual() {
    Map settings = org.apache.spark.sql.internal.SQLConf.get().settings();
    synchronized (settings) {
      java.util.Iterator entries = settings.entrySet().iterator();
      while (entries.hasNext()) {
        Map.Entry entry = (Map.Entry) entries.next();
        String key = (String) entry.getKey();
        Object expected = usual.get(key);
        boolean differs = expected != null && !expected.toString().equalsIgnoreCase(entry.getValue().toString());
        if (differs || key.startsWith("spark.sql.legacy.")) return key + "=" + entry.getValue();
      }
    }
    return null;
  }

  public TreeNode apply(TreeNode plan) {
    String verb = (String) VERBS.get(plan.nodeName());
    if (verb != null) refuseChange((LogicalPlan) ((LogicalPlan) plan).children().apply(0), verb);
    if (plan.containsPattern(TreePattern.JOIN())
        && org.apache.spark.sql.internal.SQLConf.get().adaptiveExecutionEnabled())
      addProbes((LogicalPlan) plan, planning().probes);
    return visit((LogicalPlan) plan, null);
  }

  /** Adds the attributes that a join compares with keys of its other side, by which {@link PruneByKeys} may skip. */
  private static void addProbes(LogicalPlan plan, Map probes) {
    for (int i = 0; i < plan.children().size(); i++) addProbes((LogicalPlan) plan.children().apply(i), probes);
    if (!(plan instanceof Join)) return;
    scala.Option keys = ExtractEquiJoinKeys.unapply((Join) plan);
    if (!keys.isDefined()) return;
    boolean[] sides = {PartitionPruning$.MODULE$.canPruneLeft(((Join) plan).joinType()),
        PartitionPruning$.MODULE$.canPruneRight(((Join) plan).joinType())};
    for (int side = 0; side < 2; side++) {
      scala.collection.immutable.Seq compared =
          (scala.collection.immutable.Seq) ((scala.Product) keys.get()).productElement(1 + side);
      for (int i = 0; i < compared.size() && sides[side]; i++)
        if (compared.apply(i) instanceof Attribute) probes.put(((Attribute) compared.apply(i)).exprId(), Boolean.TRUE);
    }
  }

  /** Spark's statements that change a table, and the verbs of the command line that do so. */
  private static final Map VERBS = new HashMap();

  static {
    VERBS.put("DeleteFromTable", "delete");
    VERBS.put("UpdateTable", "update");
    VERBS.put("MergeIntoTable", "merge");
  }

  /** Refuses to change a registered table: Spark's own message about its view names neither reason nor remedy. */
  private static void refuseChange(LogicalPlan target, String verb) {
    while (target.children().size() == 1) target = (LogicalPlan) target.children().apply(0);
    RegisteredIndex table = RegisteredIndex.of(target);
    if (table != null)
      raise("the table " + table.name + " can't be changed by SQL: use `layoutopt " + verb + "` on its folder");
  }

  /** above: the condition that rows of the plan must meet further up; null if unknown. */
  private LogicalPlan visit(LogicalPlan plan, Expression above) {
    scala.collection.immutable.Seq projected = null;
    Expression condition = null;
    LogicalPlan below = plan;
    if (below instanceof Project) { projected = ((Project) below).projectList(); below = ((Project) below).child(); }
    if (below instanceof Filter) { condition = ((Filter) below).condition(); below = ((Filter) below).child(); }
    RegisteredIndex table = RegisteredIndex.of(below);
    if (table != null) {
      if (condition != null) condition = withSubqueries(condition);
      Scan scan = new Scan(table, (LogicalRelation) below, condition, projected);
      LogicalPlan result = read(scan, plan, above);
      if (projected == null) return result;
      result = withSubqueriesOf(new Project(projected, result));
      // Spark's rule that prunes fields of structs ran before the files were known to be Parquet.
      return scan.isNested() ? (LogicalPlan) SchemaPruning$.MODULE$.apply(result) : result;
    }
    Expression passed = through(plan, above);
    scala.collection.immutable.Seq children = plan.children();
    List visited = new ArrayList();
    boolean changed = false;
    for (int i = 0; i < children.size(); i++) {
      LogicalPlan child = visit((LogicalPlan) children.apply(i), passed);
      changed |= child != children.apply(i);
      visited.add(child);
    }
    return withSubqueriesOf(changed ? (LogicalPlan) plan.withNewChildren(Seqs.of(visited)) : plan);
  }

  /**
   * The condition that rows below a plan must meet further up. Spark separates conditions with Python functions from
   * the scan, and computes the functions in between.
   */
  private static Expression through(LogicalPlan plan, Expression above) {
    if (plan instanceof Filter) {
      Expression condition = ((Filter) plan).condition();
      return above == null ? condition : new And(above, condition);
    }
    if (above == null) return null;
    Map values = new HashMap();
    if (plan instanceof Project) {
      scala.collection.immutable.Seq list = ((Project) plan).projectList();
      for (int i = 0; i < list.size(); i++) {
        NamedExpression item = (NamedExpression) list.apply(i);
        if (!((Expression) item).deterministic()) return null;
        if (item instanceof Alias) values.put(item.exprId(), ((Alias) item).child());
      }
    } else if (plan instanceof BaseEvalPython) {
      scala.collection.immutable.Seq functions = ((BaseEvalPython) plan).udfs();
      scala.collection.immutable.Seq results = ((BaseEvalPython) plan).resultAttrs();
      for (int i = 0; i < results.size(); i++)
        values.put(((Attribute) results.apply(i)).exprId(), functions.apply(i));
    } else {
      return null;
    }
    Expression replaced = (Expression) new Replacing(values).apply(above);
    return isSmall(replaced) ? replaced : null;
  }

  /** Whether an expression has not too many parts, repeated ones included. */
  public static boolean isSmall(Expression expression) { return isSmall(expression, new int[] {MOST_ABOVE}); }

  private static boolean isSmall(Expression expression, int[] left) {
    if (--left[0] < 0) return false;
    scala.collection.immutable.Seq children = expression.children();
    for (int i = 0; i < children.size(); i++) if (!isSmall((Expression) children.apply(i), left)) return false;
    return true;
  }

  /** Replaces attributes by expressions. */
  public static class Replacing extends scala.runtime.AbstractFunction1 {
    private final Map values;

    public Replacing(Map values) { this.values = values; }

    public Object apply(Object expression) {
      if (!(expression instanceof Attribute)) return ((Expression) expression).mapChildren(this);
      Object value = values.get(((Attribute) expression).exprId());
      return value == null ? expression : value;
    }
  }

  /** Optimises subqueries that the optimiser added late: runtime filters and partition pruning. */
  private LogicalPlan withSubqueriesOf(LogicalPlan plan) {
    boolean has = false;
    scala.collection.immutable.Seq expressions = plan.expressions();
    for (int i = 0; i < expressions.size(); i++)
      has |= ((Expression) expressions.apply(i)).containsPattern(TreePattern.PLAN_EXPRESSION());
    return has ? (LogicalPlan) plan.mapExpressions(new Subqueries(this)) : plan;
  }

  Expression withSubqueries(Expression expression) {
    if (!expression.containsPattern(TreePattern.PLAN_EXPRESSION())) return expression;
    Expression result = (Expression) expression.mapChildren(new Subqueries(this));
    if (!(result instanceof PlanExpression) || !(((PlanExpression) result).plan() instanceof LogicalPlan)) return result;
    LogicalPlan before = (LogicalPlan) ((PlanExpression) result).plan();
    LogicalPlan after = visit(before, null);
    return before == after ? result : (Expression) ((PlanExpression) result).withNewPlan(after);
  }

  /** Asks Python for the plan that replaces a scan. If this fails before the answer, the whole table is read. */
  private LogicalPlan read(Scan scan, LogicalPlan plan, Expression above) {
    Planning planning = planning();
    scan.place = planning.token + " " + planning.scans.getAndIncrement();
    scan.probes = planning.probes;
    boolean isOnlyPlanned = ONLY_PLANNING.get() != null;
    Object key = null;
    Object answer = null;
    try {
      scan.above = scan.projected ? through(plan, above) : above;
      scan.unusual = unusual();
      String text = scan.toJson(scan.unusual, scan.all());
      // Details that Python does not need, such as the plans of subqueries, are left out.
      key = Arrays.asList(new Object[] {text + scan.ids(), scan.condition, scan.above});
      LogicalPlan known = (LogicalPlan) planning.plans.get(key);
      if (known != null) return known;
      answer = handler.apply((isOnlyPlanned ? "plan " : "read ") + scan.place + "\n" + text, scan);
    } catch (Throwable failure) {
      answer = whole(scan, planning, failure);
    }
    if (answer instanceof String) raise((String) answer);
    LogicalPlan result = isOnlyPlanned ? scan.nothing() : (LogicalPlan) answer;
    if (key != null) planning.plans.put(key, result);
    return result;
  }

  private Object whole(Scan scan, Planning planning, Throwable failure) {
    org.slf4j.LoggerFactory.getLogger("layoutopt.spark").warn(
        "planning the scan of the table " + scan.table.name + " failed (" + failure + "): the whole table is read");
    try {
      return handler.apply("read " + scan.place + "\n" + scan.toJson(null, null), scan);
    } catch (Throwable again) {
      return "Python did not answer what to read of the table " + scan.table.name + " (" + again
          + "); its process may have ended: run the query again in a session whose Python process runs";
    }
  }

  private static Planning planning() {
    scala.Option tracker = QueryPlanningTracker.get();
    if (!tracker.isDefined()) return new Planning();
    synchronized (PLANNING) {
      if (!PLANNING.containsKey(tracker.get())) PLANNING.put(tracker.get(), new Planning());
      return (Planning) PLANNING.get(tracker.get());
    }
  }

  /** Throws a checked exception that PySpark translates, from a method that can't declare it. */
  static void raise(String sentence) {
    new scala.util.Failure(new org.apache.spark.sql.execution.QueryExecutionException(sentence, null)).get();
  }

  /** The state of planning one query and its subqueries: the snapshots that it reads, and its scans. */
  static class Planning {
    final long token = TOKENS.incrementAndGet();
    final Map plans = new ConcurrentHashMap();
    final AtomicLong scans = new AtomicLong();
    final Map probes = new ConcurrentHashMap();
  }

  static class Subqueries extends scala.runtime.AbstractFunction1 {
    private final ReadBlocks rule;

    Subqueries(ReadBlocks rule) { this.rule = rule; }

    public Object apply(Object expression) { return rule.withSubqueries((Expression) expression); }
  }

  /**
   * Returns the relation that represents a table in plans.
   *
   * partition: the partition column, or null if there is none with a single value for each file.
   */
  public LogicalPlan register(Object session, String id, String name, StructType schema, String partition, long bytes) {
    StructType partitions = new StructType();
    if (partition != null) partitions = partitions.add(schema.apply(partition));
    Map options = new HashMap();
    options.put(OPTION, name);
    HadoopFsRelation relation = new HadoopFsRelation(new RegisteredIndex(id, name, partitions, bytes, handler),
        partitions, schema, scala.Option.apply(null), new RegisteredFormat(), Seqs.map(options),
        (org.apache.spark.sql.SparkSession) session);
    return Versions.relation(relation, Seqs.attributes(relation.schema()), scala.Option.apply(null));
  }

  /**
   * Plans a query without reading anything; returns its token for Python, or -1 if it has no scan of a registered
   * table.
   */
  public long plan(org.apache.spark.sql.classic.SparkSession session, LogicalPlan analyzed) {
    org.apache.spark.sql.execution.QueryExecution query = session.sessionState().executePlan(analyzed,
        org.apache.spark.sql.execution.CommandExecutionMode$.MODULE$.SKIP());
    ONLY_PLANNING.set(Boolean.TRUE);
    try {
      query.optimizedPlan();
    } finally {
      ONLY_PLANNING.remove();
    }
    Planning planning = (Planning) PLANNING.get(query.tracker());
    return planning == null ? -1 : planning.token;
  }

  /** Adds the table function that reads a table by its path: {@code SELECT ... FROM name('PATH')}. */
  public void addFunction(org.apache.spark.sql.classic.SparkSession session,
      org.apache.spark.sql.catalyst.FunctionIdentifier name) {
    session.sessionState().tableFunctionRegistry().registerFunction(name,
        new ExpressionInfo("layoutopt.TableFunction", name.funcName()), new TableFunction(handler, name.funcName()));
  }

  /** Removes the table function. */
  public void dropFunction(org.apache.spark.sql.classic.SparkSession session,
      org.apache.spark.sql.catalyst.FunctionIdentifier name) {
    session.sessionState().tableFunctionRegistry().dropFunction(name);
  }

  static class TableFunction extends scala.runtime.AbstractFunction1 {
    private final java.util.function.BiFunction handler;
    private final String name;

    TableFunction(java.util.function.BiFunction handler, String name) { this.handler = handler; this.name = name; }

    public Object apply(Object arguments) {
      scala.collection.immutable.Seq given = (scala.collection.immutable.Seq) arguments;
      boolean isPath = given.size() == 1 && ((Expression) given.apply(0)).foldable()
          && ((Expression) given.apply(0)).dataType() instanceof StringType;
      Object path = isPath ? ((Expression) given.apply(0)).eval(null) : null;
      if (path == null) raise(name + "(...) expects the path of a table as its only argument, a string literal");
      Object answer = handler.apply("open -\n" + path, null);
      if (answer instanceof String) raise((String) answer);
      return answer;
    }
  }

  /** Binds a name to a relation in a parsed query, unless the query itself defines the name. */
  public LogicalPlan named(LogicalPlan query, String name, LogicalPlan relation) {
    List relations = new ArrayList();
    relations.add(Versions.bind(name, SubqueryAlias$.MODULE$.apply(name, relation)));
    return (LogicalPlan) Versions.make(UnresolvedWith.class, null,
        new Object[] {query, Seqs.of(relations), Boolean.FALSE});
  }

  /** A scan of a registered table in the optimised plan; its methods make the plans that can replace it. */
  public static class Scan {
    final RegisteredIndex table;
    final LogicalRelation relation;
    final Expression condition;
    /** The settings of the session: Python may call from another thread. */
    private final org.apache.spark.sql.internal.SQLConf settings = org.apache.spark.sql.internal.SQLConf.get();
    /** What rows must meet further up in the plan, besides the condition; null if unknown. */
    Expression above;
    /** The query's token and the number of the scan in it. */
    String place;
    /** See {@link ReadBlocks#unusual()}. */
    String unusual;
    Map probes = Collections.EMPTY_MAP;
    /** Whether the driver has read the rows. */
    private boolean isHeld = false;
    final boolean projected;
    /** The attributes to read, in the relation's order. */
    final List wanted = new ArrayList();

    Scan(RegisteredIndex table, LogicalRelation relation, Expression condition,
        scala.collection.immutable.Seq projectList) {
      this.table = table;
      this.relation = relation;
      this.condition = condition;
      this.projected = projectList != null;
      scala.collection.immutable.Seq output = relation.output();
      AttributeSet needed = null;
      if (projected) {
        needed = AttributeSet$.MODULE$.apply(projectList);
        if (condition != null) needed = needed.$plus$plus(condition.references());
      }
      for (int i = 0; i < output.size(); i++)
        if (needed == null || needed.contains((NamedExpression) output.apply(i))) wanted.add(output.apply(i));
    }

    boolean isNested() {
      for (int i = 0; i < wanted.size(); i++)
        if (!(((AttributeReference) wanted.get(i)).dataType() instanceof AtomicType)) return true;
      return false;
    }

    /** Whether the condition is deterministic and has no subquery. */
    public boolean isPlain() {
      Expression all = all();
      return all == null || all.deterministic() && !all.containsPattern(TreePattern.PLAN_EXPRESSION());
    }

    Expression all() {
      return condition == null ? above : above == null ? condition : new And(condition, above);
    }

    /** The rows of a replacement plan that meet the conditions further up. */
    public LogicalPlan withConditionsAbove(LogicalPlan plan) { return above == null ? plan : new Filter(above, plan); }

    /** The columns by which keys of a join may skip blocks while the query runs, one a line. */
    public String probes() {
      StringBuilder text = new StringBuilder();
      for (int i = 0; i < wanted.size() && !isHeld; i++) {
        AttributeReference attribute = (AttributeReference) wanted.get(i);
        if (!probes.containsKey(attribute.exprId())) continue;
        if (text.length() > 0) text.append('\n');
        text.append(attribute.name());
      }
      return text.toString();
    }

    String ids() {
      StringBuilder text = new StringBuilder();
      for (int i = 0; i < wanted.size(); i++) text.append(' ').append(((AttributeReference) wanted.get(i)).exprId());
      return text.toString();
    }

    String toJson(String unusual, Expression all) {
      StringBuilder text = new StringBuilder("{\"id\":");
      Json.quote(text, table.id);
      text.append(",\"columns\":[");
      for (int i = 0; i < wanted.size(); i++) {
        if (i > 0) text.append(',');
        Json.quote(text, ((AttributeReference) wanted.get(i)).name());
      }
      text.append("],\"condition\":");
      if (all == null) text.append("null");
      else new Json(relation.output()).write(text, all);
      text.append(",\"unusual\":");
      if (unusual == null) text.append("null");
      else Json.quote(text, unusual);
      return text.append('}').toString();
    }

    /** The scan over tasks that read its blocks, which have the wanted columns by name; bytes as for {@link #read}. */
    public LogicalPlan overTasks(LogicalPlan source, long bytes, int part) {
      LogicalPlan sized = sized(source, bytes);
      new Part(this, part).putTasks(sized);
      return over(sized);
    }

    /** Tasks with the size of what they read: by the rows that they are given, Spark would broadcast any table. */
    LogicalPlan sized(LogicalPlan tasks, long bytes) {
      LogicalPlan given = (LogicalPlan) tasks.children().apply(0);
      AttributeMap none = AttributeMap$.MODULE$.empty();
      scala.math.BigInt size = scala.math.BigInt.apply(Math.max(bytes, 1))
          .$times(EstimationUtils$.MODULE$.getSizePerRow(given.output(), none))
          .$div(EstimationUtils$.MODULE$.getSizePerRow(tasks.output(), none));
      org.apache.spark.sql.classic.SparkSession session =
          (org.apache.spark.sql.classic.SparkSession) ((HadoopFsRelation) relation.relation()).sparkSession();
      Object rows = session.sessionState().executePlan(given,
          org.apache.spark.sql.execution.CommandExecutionMode$.MODULE$.SKIP()).toRdd();
      List children = new ArrayList();
      children.add(held(given.output(), rows, null, null, size));
      return (LogicalPlan) tasks.withNewChildren(Seqs.of(children));
    }

    private LogicalPlan held(Object output, Object rows, Object partitioning, Object ordering, scala.math.BigInt size) {
      Statistics statistics = new Statistics(size, scala.Option.apply(null), AttributeMap$.MODULE$.empty(), false);
      return (LogicalPlan) Versions.make(LogicalRDD.class, LogicalRDD$.MODULE$, new Object[] {output, rows, partitioning,
          ordering, Boolean.FALSE, scala.Option.apply(null), ((HadoopFsRelation) relation.relation()).sparkSession(),
          scala.Option.apply(statistics), scala.Option.apply(null), Boolean.FALSE});
    }

    /** The scan over another source, which has the wanted columns by name. */
    public LogicalPlan over(LogicalPlan source) {
      List aliases = new ArrayList();
      List values = columns(source);
      for (int i = 0; i < wanted.size(); i++)
        aliases.add(named((Expression) values.get(i), (AttributeReference) wanted.get(i)));
      LogicalPlan result = new Project(Seqs.of(aliases), source);
      return condition == null ? result : new Filter(condition, result);
    }

    private List columns(LogicalPlan source) {
      List result = new ArrayList();
      for (int i = 0; i < wanted.size(); i++) result.add(column(source, (AttributeReference) wanted.get(i)));
      return result;
    }

    /** The source column of a wanted attribute, by name. */
    private Expression column(LogicalPlan source, AttributeReference attribute) {
      Expression result = null;
      for (int i = 0; i < source.output().size(); i++)
        if (((Attribute) source.output().apply(i)).name().equals(attribute.name()))
          result = (Expression) source.output().apply(i);
      checkType(attribute, result == null ? null : result.dataType());
      return result;
    }

    private void checkType(AttributeReference attribute, DataType type) {
      if (type == null || !DataType$.MODULE$.equalsIgnoreNullability(type, attribute.dataType()))
        raise("the column " + attribute.name() + " of the table " + table.name + " is no longer "
            + attribute.dataType().catalogString() + "; make the DataFrame again, or run REFRESH TABLE "
            + table.name);
    }

    /**
     * The values of a part of the condition for rows of constants, a letter each: t, f, n for NULL, ? if it fails.
     *
     * path: the places of the operands that lead from the condition to the part.
     * columns: the names of its columns, one a line.
     * rows: the values of these columns row by row, as {@link Text#value} reads them, one a line.
     */
    public String compute(String path, String columns, String rows) {
      Expression part = all();
      int[] places = Text.ints(path);
      for (int i = 0; i < places.length; i++) part = (Expression) part.children().apply(places[i]);
      String[] names = Text.lines(columns);
      String[] values = Text.lines(rows);
      AttributeReference[] attributes = new AttributeReference[names.length];
      scala.collection.immutable.Seq output = relation.output();
      for (int i = 0; i < output.size(); i++)
        for (int j = 0; j < names.length; j++)
          if (((AttributeReference) output.apply(i)).name().equals(names[j]))
            attributes[j] = (AttributeReference) output.apply(i);
      char[] results = new char[values.length / names.length];
      for (int row = 0; row < results.length; row++) {
        Map constants = new HashMap();
        for (int i = 0; i < names.length; i++) {
          DataType type = attributes[i].dataType();
          constants.put(attributes[i].exprId(), new Literal(Text.value(values[row * names.length + i], type), type));
        }
        Object value = org.apache.spark.sql.internal.SQLConf.withExistingConf(settings, new Computing(part, constants));
        results[row] = ((Character) value).charValue();
      }
      return new String(results);
    }

    /** See {@link Snapshot}. */
    public Snapshot snapshot(String key, String block, StructType schema, String paths, String partition,
        String partitionOf, String values, Map options) {
      return new Snapshot(key, block, schema, paths, partition, partitionOf, values, options);
    }

    /** A digest of the code of a Python function. */
    public String digest(org.apache.spark.api.python.PythonFunction function) { return Json.digest(function); }

    /**
     * Reads files by Spark's own Parquet reader.
     *
     * files: their numbers in the snapshot.
     * blocks: the ids of the blocks to read, ascending; null for all blocks of these files.
     * bytes: the size of the scan for the join planner.
     * part: the number of this part of the query's reads.
     * opaque: the columns whose conditions must not be pushed to Parquet, one a line.
     * rest: a plan of other rows of the table, or null.
     */
    public LogicalPlan read(Snapshot snapshot, String files, String blocks, long bytes, int part, String opaque,
        String label, LogicalPlan rest, long restBytes, int restPart) {
      int[] chosen = Text.ints(files);
      List hidden = Arrays.asList(Text.lines(opaque));
      StructType columns = new StructType();
      StructType partitions = new StructType();
      List attributes = new ArrayList();
      List shown = new ArrayList();
      boolean hasHidden = false;
      for (int i = 0; i < wanted.size(); i++) {
        AttributeReference attribute = (AttributeReference) wanted.get(i);
        checkType(attribute, snapshot.typeOf(attribute.name()));
        StructField field = new StructField(attribute.name(), attribute.dataType(), true, attribute.metadata());
        if (attribute.name().equals(snapshot.partition)) partitions = partitions.add(field);
        columns = columns.add(field);
        if (hidden.contains(attribute.name())) {
          AttributeReference raw = attribute.newInstance();
          attributes.add(raw);
          shown.add(named(opaque(raw), attribute));
          hasHidden = true;
        } else {
          attributes.add(attribute);
          shown.add(attribute);
        }
      }
      AttributeReference block = block(snapshot);
      if (blocks != null) {
        columns = columns.add(block.name(), LongType$.MODULE$);
        attributes.add(block);
      }
      org.apache.spark.sql.SparkSession session = ((HadoopFsRelation) this.relation.relation()).sparkSession();
      BlockIndex index = new BlockIndex(snapshot, session, chosen, partitions, blocks, bytes,
          new Part(this, part));
      HadoopFsRelation relation = new HadoopFsRelation(index, partitions, columns, scala.Option.apply(null),
          new ParquetFileFormat(), Seqs.map(snapshot.options), session);
      LogicalPlan result = Versions.relation(relation, Seqs.of(attributes), named(label, columns));
      if (blocks != null) result = new Filter(Blocks.isIn(block, Text.longs(blocks)), result);
      // With changed columns, Spark finds no condition that it can push to Parquet.
      Expression pushed = hasHidden && condition != null ? pushed(condition, hidden) : null;
      if (pushed != null) result = new Filter(pushed, result);
      if (hasHidden || blocks != null) result = new Project(Seqs.of(shown), result);
      if (condition != null) result = new Filter(condition, result);
      if (rest == null) return result;
      // Both sides have the condition, which may be random: it is evaluated once for each row.
      List both = new ArrayList();
      both.add(result);
      both.add(overTasks(rest, restBytes, restPart));
      return new Union(Seqs.of(both), false, false);
    }

    private static AttributeReference block(Snapshot snapshot) {
      return new AttributeReference(snapshot.block, LongType$.MODULE$, true, Metadata$.MODULE$.empty(),
          NamedExpression$.MODULE$.newExprId(), Seqs.none());
    }

    /** Few rows that the driver has, as an Arrow stream of the wanted columns; Spark reads them without a job. */
    public LogicalPlan local(byte[] stream, String label) {
      isHeld = true;
      scala.Tuple2 read = Versions.readStream(stream);
      scala.collection.Iterator rows = (scala.collection.Iterator) read._1();
      StructField[] fields = ((StructType) read._2()).fields();
      for (int i = 0; i < wanted.size(); i++) checkType((AttributeReference) wanted.get(i), fields[i].dataType());
      List copies = new ArrayList();
      while (rows.hasNext()) copies.add(((InternalRow) rows.next()).copy());
      LogicalPlan local = Versions.rows(Seqs.of(wanted), Seqs.of(copies));
      // Always true: it shows in the plan what was read.
      Expression isLabelled = new IsNotNull(Literal.create(UTF8String.fromString(label), StringType$.MODULE$));
      return new Filter(condition == null ? isLabelled : new And(isLabelled, condition), local);
    }

    /** The parts of a condition that can be pushed to Parquet, without some columns; null if there is none. */
    private static Expression pushed(Expression condition, List hidden) {
      if (condition instanceof And) {
        Expression left = pushed(((And) condition).left(), hidden);
        Expression right = pushed(((And) condition).right(), hidden);
        return left == null ? right : right == null ? left : new And(left, right);
      }
      scala.collection.Iterator references = condition.references().iterator();
      while (references.hasNext()) if (hidden.contains(((Attribute) references.next()).name())) return null;
      return DataSourceStrategy$.MODULE$.translateFilter(condition, true).isDefined() ? condition : null;
    }

    /** More rows that the driver has, with their size, by which the join planner decides on a broadcast. */
    public LogicalPlan held(LogicalPlan rows, long bytes, String label) {
      isHeld = true;
      if (!(rows instanceof LogicalRDD)) return over(rows);
      LogicalRDD held = (LogicalRDD) rows;
      held.rdd().setName(label);
      return over(held(held.output(), held.rdd(), held.outputPartitioning(), held.outputOrdering(),
          scala.math.BigInt.apply(Math.max(bytes, 1))));
    }

    /** No rows, for a scan that is only planned. */
    public LogicalPlan nothing() {
      return over(Versions.rows(Seqs.of(wanted), Seqs.none()));
    }

    /** A number of rows without columns. */
    public LogicalPlan count(long rows) {
      return over(new Project(Seqs.none(), new Range(0, rows, 1, scala.Option.apply(null), rangeOutput(), false)));
    }

    private static scala.collection.immutable.Seq rangeOutput() {
      List one = new ArrayList();
      one.add(new AttributeReference("id", LongType$.MODULE$, false, Metadata$.MODULE$.empty(),
          NamedExpression$.MODULE$.newExprId(), Seqs.none()));
      return Seqs.of(one);
    }

    private static Expression named(Expression value, AttributeReference attribute) {
      return new Alias(value, attribute.name(), attribute.exprId(), attribute.qualifier(),
          scala.Option.apply(attribute.metadata()), Seqs.none());
    }

    /** An equal expression that Spark does not push to Parquet. */
    private static Expression opaque(AttributeReference column) {
      if (column.dataType() instanceof FractionalType) return new NaNvl(column, column);
      List branches = new ArrayList();
      branches.add(new scala.Tuple2(new IsNotNull(column), column));
      return new CaseWhen(Seqs.of(branches), scala.Option.apply(null));
    }

    /** The name of the scan in Spark's plans and UI. */
    private static scala.Option named(String label, StructType schema) {
      Object createTime = Long.valueOf(0);  // equal scans are equal
      return scala.Option.apply(Versions.make(CatalogTable.class, CatalogTable$.MODULE$, new Object[] {
          new TableIdentifier(label), CatalogTableType.EXTERNAL(), CatalogStorageFormat.empty(), schema, null, null,
          null, null, createTime}));
    }
  }

  /** Computes a condition for constants in place of columns. */
  static class Computing extends scala.runtime.AbstractFunction0 {
    private final Expression condition;
    private final Map constants;

    Computing(Expression condition, Map constants) {
      this.condition = condition;
      this.constants = constants;
    }

    public Object apply() {
      if (!condition.deterministic() || condition.containsPattern(TreePattern.PLAN_EXPRESSION()))
        return new Character('?');
      try {
        Object value = ((Expression) new Replacing(constants).apply(condition)).eval(null);
        return new Character(value == null ? 'n' : ((Boolean) value).booleanValue() ? 't' : 'f');
      } catch (Throwable failure) {
        return new Character('?');
      }
    }
  }

  /** The data files of one snapshot that Spark's own reader can read. */
  public static class Snapshot {
    final String key;
    final String block;
    final StructType schema;
    final String partition;
    final Map options;
    final String[] paths;
    final int[] partitionOf;
    final InternalRow[] values;
    private final Map statuses = new HashMap();

    /**
     * key: identifies the table and the snapshot.
     * schema: the table's schema.
     * paths: the files' paths, one a line.
     * partitionOf: the number of each file's partition.
     * values: each partition's value in Spark's internal form, one a line: "n" for NULL, else "v" and the text.
     */
    Snapshot(String key, String block, StructType schema, String paths, String partition, String partitionOf,
        String values, Map options) {
      this.key = key;
      this.block = block;
      this.schema = schema;
      this.partition = partition;
      this.paths = Text.lines(paths);
      this.partitionOf = Text.ints(partitionOf);
      this.options = new HashMap(options);
      String[] texts = Text.lines(values);
      this.values = new InternalRow[texts.length];
      for (int i = 0; i < texts.length; i++)
        this.values[i] = new GenericInternalRow(new Object[] {Text.value(texts[i], typeOf(partition))});
    }

    DataType typeOf(String column) {
      scala.Option index = column == null ? scala.Option.apply(null) : schema.getFieldIndex(column);
      return index.isDefined() ? schema.fields()[((Integer) index.get()).intValue()].dataType() : null;
    }

    /** The file system's status of a file; folders are listed once, since data files never change. */
    synchronized FileStatus status(int file, Configuration configuration) throws java.io.IOException {
      Path path = new Path(paths[file]);
      if (!statuses.containsKey(path.getName() + path.getParent())) {
        FileStatus[] listed = path.getFileSystem(configuration).listStatus(path.getParent());
        for (int i = 0; i < listed.length; i++) statuses.put(listed[i].getPath().getName() + path.getParent(), listed[i]);
      }
      FileStatus status = (FileStatus) statuses.get(path.getName() + path.getParent());
      if (status == null) throw new java.io.FileNotFoundException(paths[file]);
      return status;
    }
  }

  /** The files of a read; with a condition on blocks, only parts of them are read. */
  static class BlockIndex implements FileIndex {
    private final Snapshot snapshot;
    private final org.apache.spark.sql.SparkSession session;
    private final int[] files;
    private final StructType partitions;
    private final String blocks;
    private final long bytes;
    final Part part;

    BlockIndex(Snapshot snapshot, org.apache.spark.sql.SparkSession session, int[] files, StructType partitions,
        String blocks, long bytes, Part part) {
      this.snapshot = snapshot;
      this.session = session;
      this.files = files;
      this.partitions = partitions;
      this.blocks = blocks;
      this.bytes = bytes;
      this.part = part;
    }

    public scala.collection.immutable.Seq rootPaths() {
      return files.length == 0 ? Seqs.none()
          : Seqs.of(Collections.singletonList(new Path(snapshot.paths[files[0]]).getParent()));
    }

    public scala.collection.immutable.Seq listFiles(scala.collection.immutable.Seq partitionFilters,
        scala.collection.immutable.Seq dataFilters) {
      boolean[] kept = kept(partitionFilters);
      Configuration configuration = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().newHadoopConf();
      Map byPartition = new LinkedHashMap();
      try {
        for (int i = 0; i < files.length; i++) {
          Integer partition = new Integer(partitions.isEmpty() ? 0 : snapshot.partitionOf[files[i]]);
          if (!partitions.isEmpty() && !kept[partition.intValue()]) continue;
          if (!byPartition.containsKey(partition)) byPartition.put(partition, new ArrayList());
          ((List) byPartition.get(partition)).add(
              new FileStatusWithMetadata(snapshot.status(files[i], configuration), Seqs.map(new HashMap())));
        }
      } catch (java.io.FileNotFoundException missing) {
        raise("a data file of the query's snapshot is missing (" + missing.getMessage()
            + "), since a vacuum or a hard delete has removed it; make the DataFrame again");
      } catch (java.io.IOException failure) {
        new scala.util.Failure(failure).get();
      }
      List result = new ArrayList();
      java.util.Iterator entries = byPartition.entrySet().iterator();
      while (entries.hasNext()) {
        Map.Entry entry = (Map.Entry) entries.next();
        InternalRow values = partitions.isEmpty() ? new GenericInternalRow(new Object[0])
            : snapshot.values[((Integer) entry.getKey()).intValue()];
        result.add(new PartitionDirectory(values, Seqs.of((List) entry.getValue())));
      }
      return Seqs.of(result);
    }

    private boolean[] kept(scala.collection.immutable.Seq filters) {
      boolean[] kept = new boolean[snapshot.values.length];
      Arrays.fill(kept, true);
      for (int i = 0; i < filters.size() && !partitions.isEmpty(); i++) {
        Expression filter = (Expression) filters.apply(i);
        if (filter.references().size() != 1) continue;
        List attributes = new ArrayList();
        attributes.add(filter.references().toSeq().head());
        BasePredicate test = Predicate$.MODULE$.createInterpreted((Expression) BindReferences$.MODULE$.bindReference(
            filter, new org.apache.spark.sql.catalyst.expressions.package$AttributeSeq(Seqs.of(attributes)), false));
        test.initialize(0);
        for (int p = 0; p < kept.length; p++) kept[p] = kept[p] && test.eval(snapshot.values[p]);
      }
      return kept;
    }

    public String[] inputFiles() {
      String[] result = new String[files.length];
      for (int i = 0; i < files.length; i++) result[i] = snapshot.paths[files[i]];
      return result;
    }

    public void refresh() {}

    public long sizeInBytes() { return bytes; }

    public StructType partitionSchema() { return partitions; }

    // Reads are equal only if they read the same blocks, so that Spark reuses equal ones.
    public boolean equals(Object other) {
      if (!(other instanceof BlockIndex)) return false;
      BlockIndex that = (BlockIndex) other;
      return snapshot.key.equals(that.snapshot.key) && Arrays.equals(files, that.files)
          && (blocks == null ? that.blocks == null : blocks.equals(that.blocks));
    }

    public int hashCode() { return 31 * snapshot.key.hashCode() + Arrays.hashCode(files); }
  }

  /** A part of a query's reads, which one place in its plan reads. */
  static class Part {
    /** Parts that tasks read, by the first attribute of the tasks' output, which tells them from others. */
    private static final Map TASKS = Collections.synchronizedMap(new WeakHashMap());
    final Scan scan;
    final int number;
    /** See {@link Leaf#known}. */
    final Map joins = new ConcurrentHashMap();

    Part(Scan scan, int number) {
      this.scan = scan;
      this.number = number;
    }

    void putTasks(LogicalPlan tasks) {
      if (!tasks.output().isEmpty()) TASKS.put(((Attribute) tasks.output().apply(0)).exprId(), this);
    }

    /** The part that a plan reads; null if it reads no registered table. */
    static Part of(LogicalPlan plan) {
      // Tasks read no rows of the plan below them, but numbers.
      if (plan.nodeName().endsWith("MapInArrow") && !plan.output().isEmpty())
        return (Part) TASKS.get(((Attribute) plan.output().apply(0)).exprId());
      if (!(plan instanceof LogicalRelation) || !(((LogicalRelation) plan).relation() instanceof HadoopFsRelation))
        return null;
      FileIndex index = ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location();
      return index instanceof BlockIndex ? ((BlockIndex) index).part : null;
    }
  }

  /** Where the rows of a scan come into a plan that runs; keys of a join may leave fewer blocks to read. */
  public static class Leaf {
    private static final Object IN_VAIN = new Object();
    private final LogicalPlan plan;
    private final Part part;
    private String join;

    private Leaf(LogicalPlan plan, Part part) {
      this.plan = plan;
      this.part = part;
    }

    /** The place that a plan is; null if it is no scan of a registered table. */
    public static Leaf of(LogicalPlan plan) {
      Part part = Part.of(plan);
      return part == null ? null : new Leaf(plan, part);
    }

    /** Whether Spark's own reader reads here. */
    public boolean isNative() { return plan instanceof LogicalRelation; }

    /** What the keys of a join leave here, if they were used before; else null, and they are used now. */
    public LogicalPlan known(String join) {
      this.join = join;
      Object known = part.joins.get(join);
      return known == IN_VAIN ? plan : (LogicalPlan) known;
    }

    /** Keeps what the keys of the join leave: the place itself if they skip nothing. */
    public LogicalPlan keep(LogicalPlan narrowed) {
      Object kept = narrowed;
      if (narrowed == plan) kept = IN_VAIN;
      part.joins.put(join, kept);
      return narrowed;
    }

    /** The part that is left of this one, in which the keys used so far skip nothing more. */
    private Part left(int number) {
      Part left = new Part(part.scan, number);
      java.util.Iterator entries = part.joins.entrySet().iterator();
      while (entries.hasNext()) {
        Map.Entry entry = (Map.Entry) entries.next();
        if (entry.getValue() == IN_VAIN) left.joins.put(entry.getKey(), IN_VAIN);
      }
      left.joins.put(join, IN_VAIN);
      return left;
    }

    /** The task for Python: to read what rows need that meet the tests, besides the scan's condition. */
    public String task(List tests, String from) {
      StringBuilder text = new StringBuilder("keys ").append(part.scan.place).append("\n{\"part\":").append(part.number)
          .append(",\"from\":");
      Json.quote(text, from);
      text.append(",\"unusual\":");
      if (part.scan.unusual == null) text.append("null");
      else Json.quote(text, part.scan.unusual);
      text.append(",\"tests\":[");
      for (int i = 0; i < tests.size(); i++) {
        if (i > 0) text.append(',');
        new Json(plan.output()).write(text, (Expression) tests.get(i));
      }
      return text.append("]}").toString();
    }

    /** Fewer of the files and blocks that Spark's reader reads; see {@link Scan#read}. */
    public LogicalPlan read(String files, String blocks, long bytes, int number, String label, LogicalPlan rest,
        long restBytes, int restNumber) {
      LogicalRelation old = (LogicalRelation) plan;
      HadoopFsRelation relation = (HadoopFsRelation) old.relation();
      BlockIndex index = (BlockIndex) relation.location();
      StructType columns = relation.dataSchema();
      List attributes = new ArrayList();
      Attribute block = null;
      for (int i = 0; i < old.output().size(); i++) {
        Attribute attribute = (Attribute) old.output().apply(i);
        attributes.add(attribute);
        if (attribute.name().equals(index.snapshot.block)) block = attribute;
      }
      boolean isAdded = blocks != null && block == null;
      if (isAdded) {
        block = Scan.block(index.snapshot);
        columns = columns.add(block.name(), LongType$.MODULE$);
        attributes.add(block);
      }
      BlockIndex fewer = new BlockIndex(index.snapshot, index.session, Text.ints(files), index.partitions, blocks, bytes,
          left(number));
      LogicalPlan result = Versions.relation(new HadoopFsRelation(fewer, relation.partitionSchema(), columns,
          scala.Option.apply(null), relation.fileFormat(), relation.options(), relation.sparkSession()),
          Seqs.of(attributes), Scan.named(label, columns));
      if (blocks != null) result = new Filter(Blocks.isIn((AttributeReference) block, Text.longs(blocks)), result);
      if (isAdded) result = new Project(old.output(), result);
      if (rest == null) return result;
      List both = new ArrayList();
      both.add(result);
      both.add(over(rest, restBytes, restNumber));
      return new Union(Seqs.of(both), false, false);
    }

    /** The rows of other tasks, which have the same columns by name. */
    public LogicalPlan over(LogicalPlan tasks, long bytes, int number) {
      LogicalPlan source = part.scan.sized(tasks, bytes);
      left(number).putTasks(source);
      List aliases = new ArrayList();
      for (int i = 0; i < plan.output().size(); i++) {
        AttributeReference attribute = (AttributeReference) plan.output().apply(i);
        // An equal id, but another object: the tasks that are replaced here may then be forgotten.
        ExprId id = new ExprId(attribute.exprId().id(), attribute.exprId().jvmId());
        aliases.add(new Alias(part.scan.column(source, attribute), attribute.name(), id, attribute.qualifier(),
            scala.Option.apply(attribute.metadata()), Seqs.none()));
      }
      return new Project(Seqs.of(aliases), source);
    }

    /** No rows. */
    public LogicalPlan nothing() { return Versions.rows(plan.output(), Seqs.none()); }
  }

  /** The files of a registered table, before the rule replaces the relation. */
  static class RegisteredIndex implements FileIndex {
    final String id;
    final String name;
    private final StructType partitions;
    private final long bytes;
    private final java.util.function.BiFunction handler;

    RegisteredIndex(String id, String name, StructType partitions, long bytes, java.util.function.BiFunction handler) {
      this.id = id;
      this.name = name;
      this.partitions = partitions;
      this.bytes = bytes;
      this.handler = handler;
    }

    public scala.collection.immutable.Seq rootPaths() { return Seqs.none(); }

    public scala.collection.immutable.Seq listFiles(scala.collection.immutable.Seq partitionFilters,
        scala.collection.immutable.Seq dataFilters) {
      RegisteredFormat.refuse(name);
      return null;
    }

    public String[] inputFiles() { return new String[0]; }

    static RegisteredIndex of(LogicalPlan plan) {
      if (!(plan instanceof LogicalRelation)) return null;
      Object relation = ((LogicalRelation) plan).relation();
      if (!(relation instanceof HadoopFsRelation)) return null;
      FileIndex index = ((HadoopFsRelation) relation).location();
      return index instanceof RegisteredIndex ? (RegisteredIndex) index : null;
    }

    public void refresh() {
      Object answer = handler.apply("refresh " + id + "\n", null);
      if (answer instanceof String) raise((String) answer);
    }

    public long sizeInBytes() { return bytes; }

    public StructType partitionSchema() { return partitions; }

    public boolean equals(Object other) {
      return other instanceof RegisteredIndex && id.equals(((RegisteredIndex) other).id);
    }

    public int hashCode() { return id.hashCode(); }
  }

  /** The format of registered tables' relations. It is not Parquet, so no other rule treats them as files. */
  public static class RegisteredFormat implements FileFormat, org.apache.spark.sql.sources.DataSourceRegister {
    public String shortName() { return "layoutopt"; }

    public scala.Option inferSchema(org.apache.spark.sql.SparkSession session, scala.collection.immutable.Map options,
        scala.collection.immutable.Seq files) {
      return scala.Option.apply(null);
    }

    public OutputWriterFactory prepareWrite(org.apache.spark.sql.SparkSession session,
        org.apache.hadoop.mapreduce.Job job, scala.collection.immutable.Map options, StructType schema) {
      throw new UnsupportedOperationException("layoutopt only reads here; write rows by layoutopt load or append");
    }

    public scala.Function1 buildReaderWithPartitionValues(org.apache.spark.sql.SparkSession session, StructType data,
        StructType partitions, StructType required, scala.collection.immutable.Seq filters,
        scala.collection.immutable.Map options, Configuration configuration) {
      return refuse((String) options.apply(OPTION));
    }

    /** Fails if a plan runs to which the rule was not applied. */
    static scala.Function1 refuse(String name) {
      raise("the session no longer has layoutopt's optimiser rule, which reads the table " + name + "; call"
          + " layoutopt.spark.enable(spark), and run the query again");
      return null;
    }

    public boolean equals(Object other) { return other instanceof RegisteredFormat; }

    public int hashCode() { return 17; }
  }

  /** Conditions that select the rows of some blocks. */
  static class Blocks {
    // As MAX_IN_VALUES in session/enabling.py: Parquet compares values by nested calls, so much longer lists would
    // overflow its stack.
    private static final int MOST_LISTED = 400;
    // For fewer values Spark compiles a comparison with each, so each query would need its own code.
    private static final int LEAST_LISTED = 11;

    static Expression isIn(AttributeReference block, long[] ids) {
      List parts = new ArrayList();
      for (int start = 0; start < Math.max(ids.length, 1); start += MOST_LISTED)
        parts.add(listed(block, ids, start, Math.min(ids.length, start + MOST_LISTED), ids.length > MOST_LISTED));
      return any(parts);
    }

    private static Expression any(List parts) {
      if (parts.size() == 1) return (Expression) parts.get(0);
      int half = parts.size() / 2;
      return new Or(any(parts.subList(0, half)), any(parts.subList(half, parts.size())));
    }

    private static Expression listed(AttributeReference block, long[] ids, int start, int end, boolean guarded) {
      scala.collection.mutable.Builder values = scala.collection.immutable.Set$.MODULE$.newBuilder();
      for (int i = start; i < end; i++) values.$plus$eq(new Long(ids[i]));
      for (int i = end - start; i < LEAST_LISTED; i++) values.$plus$eq(new Long(-1 - i));
      Expression listed = new InSet(block, (scala.collection.immutable.Set) values.result());
      if (!guarded) return listed;
      return new And(new And(new GreaterThanOrEqual(block, bigint(ids[start])),
          new LessThanOrEqual(block, bigint(ids[end - 1]))), listed);
    }

    private static Literal bigint(long value) { return new Literal(new Long(value), LongType$.MODULE$); }
  }

  /** Parses numbers and values from Python. */
  static class Text {
    static String[] lines(String text) { return text.isEmpty() ? new String[0] : text.split("\n", -1); }

    static int[] ints(String text) {
      if (text.isEmpty()) return new int[0];
      String[] parts = text.split(",");
      int[] result = new int[parts.length];
      for (int i = 0; i < parts.length; i++) result[i] = Integer.parseInt(parts[i]);
      return result;
    }

    static long[] longs(String text) {
      if (text.isEmpty()) return new long[0];
      String[] parts = text.split(",");
      long[] result = new long[parts.length];
      for (int i = 0; i < parts.length; i++) result[i] = Long.parseLong(parts[i]);
      return result;
    }

    static Object value(String text, DataType type) {
      if (text.equals("n")) return null;
      String value = text.substring(1);
      if (type instanceof StringType)
        return UTF8String.fromBytes(Base64.getDecoder().decode(value));
      if (type instanceof BooleanType) return new Boolean(value.equals("1"));
      if (type instanceof ByteType) return new Byte(value);
      if (type instanceof ShortType) return new Short(value);
      if (type instanceof IntegerType || type instanceof DateType) return new Integer(value);
      if (type instanceof DecimalType)
        return Decimal.apply(new scala.math.BigDecimal(new java.math.BigDecimal(new java.math.BigInteger(value),
            ((DecimalType) type).scale())), ((DecimalType) type).precision(), ((DecimalType) type).scale());
      return new Long(value);
    }
  }

  public static class Seqs {
    public static scala.collection.immutable.Seq of(List items) {
      return (scala.collection.immutable.Seq) org.apache.spark.api.python.PythonUtils.toSeq(items);
    }

    static scala.collection.immutable.Seq none() { return of(new ArrayList()); }

    static scala.collection.immutable.Map map(Map items) {
      return (scala.collection.immutable.Map) org.apache.spark.api.python.PythonUtils.toScalaMap(items);
    }

    static scala.collection.immutable.Seq attributes(StructType schema) {
      List result = new ArrayList();
      for (int i = 0; i < schema.length(); i++) {
        StructField field = (StructField) schema.fields()[i];
        result.add(new AttributeReference(field.name(), field.dataType(), field.nullable(), field.metadata(),
            NamedExpression$.MODULE$.newExprId(), none()));
      }
      return of(result);
    }
  }

  /** What versions of Spark name or make differently. */
  static class Versions {
    /**
     * Make an object of a case class by its only constructor, from the arguments that the newest version takes.
     *
     * Those that an older version lacks are left out, by their types. Those that are null or not given have the defaults
     * of the companion object.
     */
    static Object make(Class of, Object companion, Object[] given) {
      java.lang.reflect.Constructor constructor = of.getConstructors()[0];
      Class[] types = constructor.getParameterTypes();
      Object[] arguments = new Object[types.length];
      int next = 0;
      try {
        for (int i = 0; i < types.length; i++) {
          while (next < given.length && !fits(given[next], types[i])) next++;
          arguments[i] = next < given.length ? given[next++] : null;
          if (arguments[i] == null)
            arguments[i] = companion.getClass().getMethod("apply$default$" + (i + 1), new Class[0]).invoke(companion,
                new Object[0]);
        }
        return constructor.newInstance(arguments);
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException(error);
      }
    }

    private static boolean fits(Object argument, Class type) {
      return argument == null || type.isPrimitive() || type.isInstance(argument);
    }

    static LogicalPlan relation(HadoopFsRelation relation, Object output, scala.Option table) {
      return (LogicalPlan) make(LogicalRelation.class, LogicalRelation$.MODULE$,
          new Object[] {relation, output, table, Boolean.FALSE, scala.Option.apply(null)});
    }

    static LogicalPlan rows(Object output, Object rows) {
      return (LogicalPlan) make(LocalRelation.class, LocalRelation$.MODULE$,
          new Object[] {output, rows, Boolean.FALSE, scala.Option.apply(null)});
    }

    /** Scala's method for the names of a case class's arguments; Scala 2.12 has none. */
    private static final java.lang.reflect.Method NAME = nameMethod();

    private static java.lang.reflect.Method nameMethod() {
      try {
        return scala.Product.class.getMethod("productElementName", new Class[] {int.class});
      } catch (NoSuchMethodException older) {
        return null;
      }
    }

    static String nameOf(scala.Product product, int place) {
      if (NAME == null)
        return (String) org.apache.spark.sql.catalyst.ScalaReflection$.MODULE$.getConstructorParameterNames(
            product.getClass()).apply(place);
      try {
        return (String) NAME.invoke(product, new Object[] {new Integer(place)});
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException(error);
      }
    }

    /** The rows of an Arrow stream and their schema; Spark 4.0 also takes the task's context, which may be null. */
    static scala.Tuple2 readStream(byte[] stream) {
      Object converters = org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$;
      java.lang.reflect.Method[] methods = converters.getClass().getMethods();
      for (int i = 0; i < methods.length; i++) {
        Class[] types = methods[i].getParameterTypes();
        // Newer versions also read an iterator of streams, by a method of the same name.
        if (!methods[i].getName().equals("fromIPCStream") || !types[0].isInstance(stream)) continue;
        Object[] arguments = new Object[types.length];
        arguments[0] = stream;
        try {
          return (scala.Tuple2) methods[i].invoke(converters, arguments);
        } catch (ReflectiveOperationException error) {
          throw new IllegalStateException(error);
        }
      }
      throw new IllegalStateException("Spark has no method that reads Arrow streams");
    }

    /** A name bound to a relation in a query; before 4.1, Spark knows no depth of recursion. */
    static Object bind(String name, Object relation) {
      java.lang.reflect.Type types = UnresolvedWith.class.getConstructors()[0].getGenericParameterTypes()[1];
      return types.getTypeName().contains("scala.Tuple2<") ? (Object) new scala.Tuple2(name, relation)
          : new scala.Tuple3(name, relation, scala.Option.apply(null));
    }
  }

  /**
   * Writes expressions as JSON: a node is [class, type, [children], {details}].
   *
   * Columns of the scan have a "name", literals a "value", lambda variables an "id". Numbers, texts, names of modes and
   * time zones stand under the names of the constructor's arguments.
   */
  static class Json {
    private static final int MOST_NODES = 50000;
    private final Map names = new HashMap();
    private int nodes = 0;

    Json(scala.collection.immutable.Seq output) {
      for (int i = 0; i < output.size(); i++) {
        AttributeReference attribute = (AttributeReference) output.apply(i);
        names.put(attribute.exprId(), attribute.name());
      }
    }

    void write(StringBuilder text, Expression node) {
      if (++nodes > MOST_NODES) throw new IllegalStateException("a condition of more than " + MOST_NODES + " parts");
      text.append('[');
      // A non-deterministic part of AND, OR and NOT does not affect the other parts.
      boolean isRandom = !node.deterministic()
          && !(node instanceof And || node instanceof Or || node instanceof Not);
      quote(text, isRandom ? "NonDeterministic" : node.getClass().getSimpleName());
      text.append(',');
      quote(text, type(node));
      text.append(",[");
      boolean isOpaque = node instanceof PlanExpression || isRandom;
      if (!isOpaque) {
        scala.collection.immutable.Seq children = node.children();
        for (int i = 0; i < children.size(); i++) {
          if (i > 0) text.append(',');
          write(text, (Expression) children.apply(i));
        }
      }
      text.append("],{");
      if (!isOpaque) details(text, node);
      text.append("}]");
    }

    private static String type(Expression node) {
      try {
        return node.dataType().catalogString();
      } catch (RuntimeException unresolved) {
        return "";
      }
    }

    private void details(StringBuilder text, Expression node) {
      if (node instanceof Literal) {
        key(text, "value");
        value(text, ((Literal) node).value(), node.dataType());
      } else if (node instanceof AttributeReference) {
        Object name = names.get(((AttributeReference) node).exprId());
        if (name != null) entry(text, "name", (String) name);
      } else if (node instanceof NamedLambdaVariable) {
        entry(text, "id", String.valueOf(((NamedLambdaVariable) node).exprId().id()));
      } else if (node instanceof InSet) {
        key(text, "values");
        text.append('[');
        scala.collection.Iterator values = ((InSet) node).hset().iterator();
        for (int i = 0; values.hasNext(); i++) {
          if (i > 0) text.append(',');
          value(text, values.next(), ((InSet) node).child().dataType());
        }
        text.append(']');
      } else if (node instanceof MultiLikeBase) {
        key(text, "patterns");
        text.append('[');
        scala.collection.immutable.Seq patterns = ((MultiLikeBase) node).patterns();
        for (int i = 0; i < patterns.size(); i++) {
          if (i > 0) text.append(',');
          value(text, patterns.apply(i), StringType$.MODULE$);
        }
        text.append(']');
      } else if (node instanceof GetStructField) {
        DataType type = ((GetStructField) node).child().dataType();
        if (type instanceof StructType)
          entry(text, "field", ((StructType) type).fields()[((GetStructField) node).ordinal()].name());
      } else {
        arguments(text, node);
      }
    }

    private void arguments(StringBuilder text, Expression node) {
      if (!(node instanceof scala.Product)) return;
      scala.Product product = (scala.Product) node;
      for (int i = 0; i < product.productArity(); i++) {
        Object argument = product.productElement(i);
        if (argument instanceof scala.Some) argument = ((scala.Some) argument).get();
        if (argument instanceof org.apache.spark.api.python.PythonFunction) {
          entry(text, Versions.nameOf(product, i), digest((org.apache.spark.api.python.PythonFunction) argument));
        } else if (argument instanceof Class) {
          entry(text, Versions.nameOf(product, i), ((Class) argument).getName());
        } else if (argument instanceof String || argument instanceof Number || argument instanceof Boolean
            || argument instanceof Character || argument instanceof scala.Enumeration$Value || isMode(argument)) {
          entry(text, Versions.nameOf(product, i), argument.toString());
        }
      }
    }

    private static boolean isMode(Object argument) {
      return argument != null && argument.getClass().getSimpleName().equals("NumericEvalContext");
    }

    private void value(StringBuilder text, Object value, DataType type) {
      if (value == null) {
        text.append("null");
      } else if (value instanceof Boolean || value instanceof Byte || value instanceof Short || value instanceof Integer
          || value instanceof Long) {
        text.append(value.toString());
      } else if (value instanceof Decimal) {
        text.append(((Decimal) value).toJavaBigDecimal().setScale(((DecimalType) type).scale()).unscaledValue());
      } else if (value instanceof Float || value instanceof Double) {
        text.append("{\"bits\":").append(Double.doubleToLongBits(((Number) value).doubleValue())).append('}');
      } else if (value instanceof UTF8String) {
        text.append("{\"text\":");
        quote(text, Base64.getEncoder().encodeToString(((UTF8String) value).getBytes()));
        text.append('}');
      } else if (value instanceof byte[]) {
        text.append("{\"binary\":");
        quote(text, Base64.getEncoder().encodeToString((byte[]) value));
        text.append('}');
      } else if (value instanceof CalendarInterval) {
        CalendarInterval interval = (CalendarInterval) value;
        text.append("{\"interval\":[").append(interval.months).append(',').append(interval.days).append(',')
            .append(interval.microseconds).append("]}");
      } else if (value instanceof org.apache.spark.sql.catalyst.util.ArrayData && type instanceof ArrayType) {
        org.apache.spark.sql.catalyst.util.ArrayData array = (org.apache.spark.sql.catalyst.util.ArrayData) value;
        DataType of = ((ArrayType) type).elementType();
        text.append("{\"array\":[");
        for (int i = 0; i < array.numElements(); i++) {
          if (i > 0) text.append(',');
          value(text, array.isNullAt(i) ? null : array.get(i, of), of);
        }
        text.append("]}");
      } else {
        text.append("{}");
      }
    }

    static String digest(org.apache.spark.api.python.PythonFunction function) {
      scala.collection.immutable.Seq command = (scala.collection.immutable.Seq) function.command();
      byte[] bytes = new byte[command.size()];
      for (int i = 0; i < bytes.length; i++) bytes[i] = ((Byte) command.apply(i)).byteValue();
      return java.util.UUID.nameUUIDFromBytes(bytes).toString();
    }

    private static void key(StringBuilder text, String name) {
      if (text.charAt(text.length() - 1) != '{') text.append(',');
      quote(text, name);
      text.append(':');
    }

    private static void entry(StringBuilder text, String name, String value) {
      key(text, name);
      quote(text, value);
    }

    static void quote(StringBuilder text, String value) {
      text.append('"');
      for (int i = 0; i < value.length(); i++) {
        char character = value.charAt(i);
        if (character == '"' || character == '\\') text.append('\\').append(character);
        else if (character < 0x20) text.append(String.format("\\u%04x", new Object[] {new Integer(character)}));
        else text.append(character);
      }
      text.append('"');
    }
  }
}
